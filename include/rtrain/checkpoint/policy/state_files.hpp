// SPDX-License-Identifier: Apache-2.0
/// @file
/// A state in the files of a checkpoint: tensors as safetensors, values as JSON. The manifest lists
/// the place of each tensor, whichever rank wrote it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/pieces.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace rtrain::checkpoint {

/// Returns the name of the file with a rank's share.
[[nodiscard]] inline std::string shard_file(const Part& part) {
    return detail::print("shard-%05d-of-%05d.safetensors", part.rank, part.size);
}

/// Throws CheckpointError [RT-K6, RT-K20] for a state that write_tensors() would reject.
inline void require_can_be_written(const Snapshot& state) {
    safetensors::Tensors tensors = {state.tensors.begin(), state.tensors.end()};
    for (const auto& [name, whole] : state.pieces) {
        for (const auto& piece : whole.pieces) {
            tensors.emplace(name, piece.elements);
        }
    }
    (void)safetensors::header_of(tensors);
}

/// Writes the tensors and pieces of `state` into one file, durably; no file if there are none.
inline Contents write_tensors(const Snapshot& state, const std::filesystem::path& directory,
                              const std::string& file) {
    Contents contents;
    safetensors::Tensors tensors;
    const auto add = [&](const std::string& name, const at::Tensor& tensor, TensorRecord record) {
        record.type = safetensors::describe(name, tensor).dtype;
        tensors.emplace(name, tensor);
        contents.tensors.emplace(name, std::move(record));
    };
    for (const auto& [name, tensor] : state.tensors) {
        add(name, tensor, {{}, tensor.sizes().vec(), false, {{file, 0, tensor.numel()}}});
    }
    for (const auto& [name, whole] : state.pieces) {
        for (const auto& piece : whole.pieces) { // a rank has one
            add(name, piece.elements,
                {{}, whole.shape, whole.rows, {{file, piece.begin, piece.elements.numel()}}});
        }
    }
    if (!tensors.empty()) {
        CheckedFile out(directory, file);
        safetensors::write(out, tensors);
        contents.files.push_back(out.finish());
    }
    return contents;
}

/// Writes the values of `state`, durably.
inline Contents write_values(const Snapshot& state, const std::filesystem::path& directory) {
    CheckedFile out(directory, values_file);
    out.write(json::serialize(state.values));
    return {{out.finish()}, {}};
}

/// Reads the state in a checkpoint's directory; tensors map the files. Throws CheckpointError:
/// RT-K1 if there is none, for example because the user reported a custom directory; RT-K2 if it is
/// damaged.
[[nodiscard]] inline Snapshot read_state(const std::filesystem::path& directory) {
    const Manifest manifest = read_manifest(directory);
    if (!internal::has_state(manifest)) {
        throw CheckpointError(
            "RT-K1",
            detail::concat(
                directory.string(), " holds no state (", values_file,
                "); read files that were reported as a Checkpoint through worker.checkpoint()"));
    }
    Snapshot state;
    state.values = internal::read_values(directory);
    std::map<std::string, safetensors::Tensors> files;
    for (const auto& [file, pieces] : internal::pieces_by_file(manifest)) {
        internal::check_pieces_in(directory, file, pieces);
    }
    for (const auto& [name, record] : manifest.contents.tensors) {
        Pieces whole{record.shape, {}, record.rows};
        for (const auto& piece : record.pieces) {
            auto file = files.find(piece.file);
            if (file == files.end()) {
                file = files.emplace(piece.file, safetensors::read(directory / piece.file)).first;
            }
            whole.pieces.push_back({piece.begin, file->second.at(name)});
        }
        if (record.rows && whole.pieces.size() > 1) {
            state.pieces.emplace(name, std::move(whole));
        } else if (whole.pieces.size() == 1) {
            state.tensors.emplace(name, whole.pieces[0].elements.view(record.shape));
        } else {
            state.tensors.emplace(name, assemble(whole));
        }
    }
    return state;
}

} // namespace rtrain::checkpoint
