// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that the files of a checkpoint are as they were written, and that a state can be read
/// from them: loading and merging rely on the same checks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/format/safetensors_header.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/mapping.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rtrain::checkpoint {

inline constexpr const char* values_file = "state.json";

namespace internal {

[[nodiscard]] inline CheckpointError damaged(const std::filesystem::path& directory,
                                             const std::string& file, std::string_view what) {
    return {"RT-K2",
            detail::concat("checkpoint damaged: ", (directory / file).string(), ' ', what)};
}

/// Throws CheckpointError [RT-K2] if a symbolic link is below `directory`: a copy would follow it.
inline void refuse_links(const std::filesystem::path& directory) {
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(directory, error), end;
         !error && at != end; at.increment(error)) {
        if (at->is_symlink(error)) {
            throw damaged(directory, at->path().lexically_relative(directory).string(),
                          not_a_plain_file);
        }
    }
    storage::require(error, "list", directory);
}

} // namespace internal

/// Returns the manifest of a local directory. Throws CheckpointError: RT-K1 the directory is not an
/// rtrain checkpoint, RT-K2 the manifest is damaged.
[[nodiscard]] inline Manifest read_manifest(const std::filesystem::path& directory) {
    const auto file = directory / manifest_file;
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) {
        throw CheckpointError("RT-K1", detail::concat(directory.string(),
                                                      " is not an rtrain checkpoint: it has no ",
                                                      manifest_file));
    }
    if (!is_plain_file(directory, manifest_file)) {
        throw internal::damaged(directory, manifest_file, not_a_plain_file);
    }
    return parse_manifest(storage::read_file(file, storage::largest_json), file.string());
}

namespace internal {

/// Reads the values of a state. Throws CheckpointError [RT-K2], StorageError [RT-S3, RT-S4].
[[nodiscard]] inline boost::json::object read_values(const std::filesystem::path& directory) {
    if (!is_plain_file(directory, values_file)) {
        throw damaged(directory, values_file, not_a_plain_file);
    }
    const std::string text = storage::read_file(directory / values_file, storage::largest_json);
    return detail::parsed([&] { return json::parse_object(text); },
                          [&](const char* why) {
                              return damaged(directory, values_file,
                                             detail::concat("is not a list of values: ", why));
                          });
}

/// A piece of a tensor that a file must contain.
struct ListedPiece {
    const std::string& name;
    const std::string& type;
    std::int64_t count;
};

/// The pieces that the manifest lists, by file.
[[nodiscard]] inline std::map<std::string, std::vector<ListedPiece>>
pieces_by_file(const Manifest& manifest) {
    std::map<std::string, std::vector<ListedPiece>> pieces;
    for (const auto& [name, record] : manifest.contents.tensors) {
        for (const auto& piece : record.pieces) {
            pieces[piece.file].push_back({name, record.type, piece.count});
        }
    }
    return pieces;
}

/// Throws CheckpointError [RT-K2] unless the safetensors file `file` holds these pieces.
inline void check_pieces_in(const std::filesystem::path& directory, const std::string& file,
                            const std::vector<ListedPiece>& pieces) {
    if (!is_plain_file(directory, file)) {
        throw damaged(directory, file, not_a_plain_file);
    }
    const auto path = directory / file;
    std::map<std::string, TensorInfo> found;
    for (auto& tensor : read_safetensors_header(storage::Mapping(path), path.string()).tensors) {
        found.emplace(tensor.name, tensor);
    }
    for (const ListedPiece& piece : pieces) {
        const auto tensor = found.find(piece.name);
        if (tensor == found.end() || tensor->second.dtype != piece.type ||
            (tensor->second.end - tensor->second.begin) /
                    safetensors::element_type(piece.type).second !=
                static_cast<std::uint64_t>(piece.count)) {
            throw damaged(
                directory, file,
                detail::concat("does not hold \"", piece.name, "\" as the manifest says"));
        }
    }
}

/// True if the manifest lists a state, not only files of the user.
[[nodiscard]] inline bool has_state(const Manifest& manifest) {
    const auto& files = manifest.contents.files;
    return std::any_of(files.begin(), files.end(),
                       [](const FileRecord& file) { return file.name == values_file; });
}

} // namespace internal

/// Checks every byte of a checkpoint against its manifest, which is returned, and the conditions
/// that loading relies on. Each of `ranks` callers checks its share of the files. Throws
/// CheckpointError [RT-K1, RT-K2] naming the first file that is missing or damaged.
inline Manifest verify(const std::filesystem::path& directory, int rank = 0, int ranks = 1) {
    Manifest manifest = read_manifest(directory);
    const auto& files = manifest.contents.files;
    const auto pieces = internal::pieces_by_file(manifest);
    for (auto i = static_cast<std::size_t>(rank); i < files.size();
         i += static_cast<std::size_t>(ranks)) {
        if (const auto damage = damage_of(directory, files[i])) {
            throw internal::damaged(directory, files[i].name, *damage);
        }
        if (files[i].name == values_file) {
            (void)internal::read_values(directory);
        }
        if (const auto its = pieces.find(files[i].name); its != pieces.end()) {
            internal::check_pieces_in(directory, its->first, its->second);
        }
    }
    return manifest;
}

} // namespace rtrain::checkpoint
