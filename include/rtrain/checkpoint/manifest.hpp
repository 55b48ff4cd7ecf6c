// SPDX-License-Identifier: Apache-2.0
/// @file
/// manifest.json, the list of a checkpoint's files with size and CRC-32 of each. A directory is a
/// checkpoint of ours if and only if it holds a manifest that its files agree with. The manifest
/// also holds the metrics of the report that made the checkpoint.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/version.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint {

inline constexpr const char* manifest_file = "manifest.json";

[[nodiscard]] inline std::uint32_t crc32_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::vector<char> buffer(std::size_t{1} << 20);
    uLong crc = ::crc32(0, nullptr, 0);
    while (stream) {
        stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
        crc = ::crc32(crc, reinterpret_cast<const Bytef*>(buffer.data()),
                      static_cast<uInt>(stream.gcount()));
    }
    if (stream.bad()) {
        throw StorageError("RT-S4", detail::concat("cannot read ", file.string()));
    }
    return static_cast<std::uint32_t>(crc);
}

[[nodiscard]] inline std::uint32_t crc32_of(std::string_view text) {
    return static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

/// What comes last in a manifest, behind the text that it is the checksum of.
inline constexpr std::string_view checksum_field = ",\"crc32\":";

/// Lists the files under `directory` and writes the manifest, durably.
inline void write_manifest(const std::filesystem::path& directory,
                           const boost::json::object& metrics) {
    std::vector<std::filesystem::path> names;
    for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
        if (item.is_regular_file() && item.path().filename() != Checkpoint::metadata_file) {
            names.push_back(item.path().lexically_relative(directory));
        }
    }
    std::sort(names.begin(), names.end());
    boost::json::array files;
    for (const auto& name : names) {
        files.push_back({{"name", name.generic_string()},
                         {"size", std::filesystem::file_size(directory / name)},
                         {"crc32", crc32_of(directory / name)}});
    }
    boost::json::object manifest{{"format", "rtrain-checkpoint"},
                                 {"version", 1},
                                 {"rtrain_version", RTRAIN_VERSION},
                                 {"metrics", metrics},
                                 {"files", std::move(files)}};
    std::string text = json::serialize(manifest);
    text.pop_back(); // the closing brace
    const std::uint32_t crc = crc32_of(std::string_view(text));
    text += detail::concat(checksum_field, crc, "}");
    storage::replace_file(directory / manifest_file, text);
}

/// Reads a manifest. Throws CheckpointError: RT-K1 the directory is no checkpoint of ours, RT-K2
/// the manifest is damaged.
[[nodiscard]] inline boost::json::object read_manifest(const std::filesystem::path& directory) {
    const auto file = directory / manifest_file;
    if (!std::filesystem::is_regular_file(file)) {
        throw CheckpointError("RT-K1", detail::concat(directory.string(),
                                                      " is no checkpoint of "
                                                      "rtrain: it has no ",
                                                      manifest_file));
    }
    const std::string text = storage::read_file(file);
    boost::json::object manifest;
    try {
        manifest = json::parse(text).as_object();
    } catch (const std::exception& error) {
        throw CheckpointError("RT-K2",
                              detail::concat(file.string(), " is damaged: ", error.what()));
    }
    const auto* const format = manifest.if_contains("format");
    if (format == nullptr || *format != "rtrain-checkpoint") {
        throw CheckpointError("RT-K1", file.string() + " was not written by rtrain");
    }
    const auto* const version = manifest.if_contains("version");
    if (version == nullptr || *version != 1) {
        throw CheckpointError("RT-K1", file.string() + " has a newer format than rtrain " +
                                           RTRAIN_VERSION + " knows; update rtrain");
    }
    const auto end = text.rfind(checksum_field);
    const auto* const crc = manifest.if_contains("crc32");
    if (end == std::string::npos || crc == nullptr ||
        *crc != crc32_of(std::string_view(text).substr(0, end))) {
        throw CheckpointError("RT-K2", file.string() + " is damaged: its checksum does not match");
    }
    return manifest;
}

/// Checks every byte of a checkpoint against its manifest, which is returned. Throws
/// CheckpointError [RT-K1, RT-K2] naming the first file that is missing or damaged.
inline boost::json::object verify(const std::filesystem::path& directory) {
    boost::json::object manifest = read_manifest(directory);
    for (const auto& item : manifest.at("files").as_array()) {
        const auto file = directory / std::string(item.at("name").as_string());
        std::string damage;
        if (!std::filesystem::is_regular_file(file)) {
            damage = "is missing";
        } else if (std::filesystem::file_size(file) != item.at("size").to_number<std::uint64_t>()) {
            damage =
                detail::concat("is ", std::filesystem::file_size(file), " bytes long instead of ",
                               item.at("size").to_number<std::uint64_t>());
        } else if (crc32_of(file) != item.at("crc32").to_number<std::uint32_t>()) {
            damage = "does not have the checksum it was written with";
        }
        if (!damage.empty()) {
            throw CheckpointError(
                "RT-K2", detail::concat("checkpoint damaged: ", file.string(), ' ', damage));
        }
    }
    return manifest;
}

} // namespace rtrain::checkpoint
