// SPDX-License-Identifier: Apache-2.0
/// @file
/// Command-line operations on a checkpoint: list it, verify it, and merge it into one file.
/// examples/checkpoint_tool.cpp is the program.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/visible_text.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/pieces.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/process/stdio/standard_streams.hpp> // a program may be started without them

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>

namespace rtrain::checkpoint {

/// Prints the manifest: metrics, files, and every tensor with type, shape and the number of its
/// pieces.
inline void list(const Checkpoint& checkpoint, std::ostream& out) {
    const Manifest manifest = read_manifest(checkpoint.as_directory());
    std::string text = detail::concat(
        checkpoint.uri(), ": number ", manifest.index, ", written by ", manifest.ranks, " rank",
        manifest.ranks == 1 ? "" : "s", "\nmetrics ", json::serialize(manifest.metrics), '\n');
    std::uint64_t bytes = 0;
    for (const FileRecord& file : manifest.contents.files) {
        text += detail::concat("file    ", file.name, "  ", file.size, " bytes\n");
        bytes += file.size;
    }
    std::int64_t elements = 0;
    for (const auto& [name, tensor] : manifest.contents.tensors) {
        text += detail::concat("tensor  ", name, "  ", tensor.type, " [");
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
        }
        text += ']';
        if (tensor.pieces.size() > 1) {
            text += detail::concat("  in ", tensor.pieces.size(), " pieces");
        }
        text += '\n';
        elements += element_count(tensor.shape);
    }
    text += detail::concat(manifest.contents.tensors.size(), " tensors, ", elements, " elements, ",
                           bytes, " bytes\n");
    out << detail::visible(text); // names and metrics come from a file
}

/// Writes all tensors of a checkpoint, regardless of how many ranks saved it, as one safetensors
/// file. Its metadata contains the other values as JSON, under "state". Throws CheckpointError
/// [RT-K2] instead of writing damaged data.
inline void merge_into_one_file(const Checkpoint& checkpoint, const std::filesystem::path& file) {
    const auto& directory = checkpoint.as_directory();
    (void)verify(directory);
    Snapshot state = read_state(directory);
    for (const auto& [name, whole] : state.pieces) {
        state.tensors.emplace(name, assemble(whole));
    }
    safetensors::write(file, state.tensors,
                       {{"format", "pt"}, {"state", json::serialize(state.values)}});
}

} // namespace rtrain::checkpoint
