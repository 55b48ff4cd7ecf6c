// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a safetensors file. What is accepted has tensors that fill the file and can be
// written again.
#include "require.hpp"

#include <rtrain/format/safetensors_header.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

using namespace rtrain::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span file(reinterpret_cast<const char*>(data), size);
    SafetensorsHeader header;
    try {
        header = parse_safetensors_header(file);
    } catch (const std::invalid_argument&) {
        return 0;
    }
    std::uint64_t offset = 0;
    for (const TensorInfo& tensor : header.tensors) {
        require(tensor.begin == offset, "tensors follow each other");
        std::uint64_t bytes = safetensors::element_type(tensor.dtype).second;
        for (const std::int64_t length : tensor.shape) {
            require(length >= 0, "sizes are not negative");
            bytes *= static_cast<std::uint64_t>(length);
        }
        offset += bytes;
        require(tensor.end == offset, "shapes agree with offsets");
    }
    require(header.data_begin + offset == size, "tensors fill the file");
    std::string again = make_safetensors_header(header.tensors, header.metadata);
    again.resize(again.size() + offset);
    const SafetensorsHeader second = parse_safetensors_header(again);
    require(second.metadata == header.metadata, "metadata come back");
    require(second.tensors.size() == header.tensors.size(), "tensors come back");
    return 0;
}
