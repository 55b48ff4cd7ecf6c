// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a manifest: as they are, and with the checksum that they would need. What is
// accepted names no file outside of the checkpoint and can be written again.
#include "require.hpp"

#include <rtrain/checkpoint/layout/manifest.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

using namespace rtrain;
using namespace rtrain::checkpoint;

namespace {

void parse(std::string_view text) {
    Manifest manifest;
    try {
        manifest = parse_manifest(text);
    } catch (const CheckpointError&) {
        return;
    }
    std::set<std::string> names;
    for (const FileRecord& file : manifest.contents.files) {
        require(is_safe_name(file.name), "names are safe");
        require(names.insert(file.name).second, "names differ");
        require(file.sums.size() ==
                    file.size / ChunkSums::chunk + (file.size % ChunkSums::chunk == 0 ? 0U : 1U),
                "each chunk has a checksum");
    }
    for (const auto& [name, tensor] : manifest.contents.tensors) {
        std::int64_t end = 0;
        for (const auto& piece : tensor.pieces) {
            require(piece.begin == end && piece.count >= 0, "pieces follow each other");
            require(names.contains(piece.file), "pieces are in listed files");
            end += piece.count;
        }
        require(end == element_count(tensor.shape), "pieces make up the tensor");
    }
    const Manifest again = parse_manifest(manifest_text(manifest));
    require(again.contents == manifest.contents, "contents come back");
    require(again.index == manifest.index && again.ranks == manifest.ranks, "numbers come back");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    parse(text);
    if (!text.empty()) { // without its closing brace
        const std::string_view open = text.substr(0, text.size() - 1);
        parse(std::string(open) + std::string(seal_field) + std::to_string(crc32c(open)) + "}");
    }
    return 0;
}
