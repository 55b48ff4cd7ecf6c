// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes safetensors files, the format of Python's safetensors package: loading runs no
/// code, and files can be mapped.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/safetensors_header.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::checkpoint::safetensors {

using Tensors = std::map<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

/// A byte sink, for example storage::OutputFile.
template <class S>
concept ByteSink = requires(S& sink, const void* data, std::size_t bytes) {
    sink.write(data, bytes);
};

inline constexpr std::array<std::pair<at::ScalarType, std::string_view>, 19> types{{
    {at::kDouble, "F64"},
    {at::kFloat, "F32"},
    {at::kHalf, "F16"},
    {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},
    {at::kInt, "I32"},
    {at::kShort, "I16"},
    {at::kChar, "I8"},
    {at::kByte, "U8"},
    {at::kBool, "BOOL"},
    {at::kUInt64, "U64"},
    {at::kUInt32, "U32"},
    {at::kUInt16, "U16"},
    {at::kComplexFloat, "C64"},
    {at::kFloat8_e4m3fn, "F8_E4M3"},
    {at::kFloat8_e5m2, "F8_E5M2"},
    {at::kFloat8_e8m0fnu, "F8_E8M0"},
    {at::kFloat8_e4m3fnuz, "F8_E4M3FNUZ"},
    {at::kFloat8_e5m2fnuz, "F8_E5M2FNUZ"},
}};

static_assert(std::all_of(element_sizes.begin(), element_sizes.end(), [](const auto& element) {
    return std::any_of(types.begin(), types.end(),
                       [&](const auto& type) { return type.second == element.first; });
}));

/// Returns name, type and shape of a tensor. Throws CheckpointError [RT-K6] if safetensors cannot
/// represent it.
[[nodiscard]] inline TensorInfo describe(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta()) {
        throw CheckpointError("RT-K6", detail::concat("tensor \"", name, "\" is ",
                                                      !tensor.defined()  ? "undefined"
                                                      : tensor.is_meta() ? "a meta tensor"
                                                                         : "sparse",
                                                      ", which safetensors cannot hold"));
    }
    const at::ScalarType type = tensor.scalar_type();
    for (const auto& [known, type_name] : types) {
        if (known == type) {
            return {name, type_name, tensor.sizes().vec(), 0, 0};
        }
    }
    throw CheckpointError("RT-K6", detail::concat("tensor \"", name, "\" has type ", type,
                                                  ", which safetensors cannot hold"));
}

struct Header {
    std::vector<TensorInfo> infos; ///< in file order
    std::string text;
};

/// Lays out larger elements first, so that each tensor is aligned to its element size. Throws
/// CheckpointError: RT-K6 for a tensor, RT-K20 for a name or a number of tensors, that safetensors
/// files cannot hold.
[[nodiscard]] inline Header header_of(const Tensors& tensors, const Metadata& metadata = {}) {
    Header header;
    header.infos.reserve(tensors.size());
    for (const auto& [name, tensor] : tensors) {
        header.infos.push_back(describe(name, tensor));
    }
    std::stable_sort(header.infos.begin(), header.infos.end(),
                     [](const auto& left, const auto& right) {
                         return element_type(left.dtype).second > element_type(right.dtype).second;
                     });
    try {
        header.text = make_safetensors_header(header.infos, metadata);
    } catch (const std::invalid_argument& error) {
        throw CheckpointError(
            "RT-K20",
            detail::concat("these tensors do not fit into a safetensors file: ", error.what()));
    }
    return header;
}

/// Writes a whole file to `sink`. Contiguous CPU tensors are written without a copy, each in one
/// call; others are copied one at a time. Throws like header_of().
template <ByteSink Sink>
void write(Sink& sink, const Tensors& tensors, const Metadata& metadata = {}) {
    const Header header = header_of(tensors, metadata);
    sink.write(header.text.data(), header.text.size());
    for (const TensorInfo& info : header.infos) {
        const at::Tensor content =
            tensors.at(info.name).detach().resolve_conj().resolve_neg().cpu().contiguous();
        if (content.nbytes() > 0) {
            sink.write(content.const_data_ptr(), content.nbytes());
        }
    }
}

/// Writes durably; returns after fsync.
inline void write(const std::filesystem::path& path, const Tensors& tensors,
                  const Metadata& metadata = {}) {
    storage::OutputFile file(path);
    write(file, tensors, metadata);
    file.sync();
}

/// Returns the tensor that `info` describes, as a view of the bytes at `data` in `file`.
[[nodiscard]] inline at::Tensor view(const TensorInfo& info, char* data,
                                     const std::shared_ptr<storage::Mapping>& file) {
    const auto* const type = std::find_if(
        types.begin(), types.end(), [&](const auto& item) { return item.second == info.dtype; });
    const auto options = at::TensorOptions(type->first);
    if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(type->first) != 0) {
        at::Tensor copy = at::empty(info.shape, options); // other writers may not align
        std::memcpy(copy.data_ptr(), data, info.end - info.begin);
        return copy;
    }
    return at::from_blob(
        data, info.shape, [file](void* /*data*/) {}, options);
}

struct Content {
    Tensors tensors;
    Metadata metadata;
};

/// Maps a file; tensors share its pages until they are modified. Do not truncate the file while
/// they are alive; removing or replacing it is harmless. Throws CheckpointError [RT-K2] if it is
/// not a safetensors file, truncated, or inconsistent; StorageError [RT-S3, RT-S4] if it cannot be
/// read.
[[nodiscard]] inline Content read_with_metadata(const std::filesystem::path& path) {
    const auto file = std::make_shared<storage::Mapping>(path);
    SafetensorsHeader header = read_safetensors_header(*file, path.string());
    Content content{.tensors = {}, .metadata = std::move(header.metadata)};
    for (const TensorInfo& info : header.tensors) {
        content.tensors.emplace(info.name,
                                view(info, file->data() + header.data_begin + info.begin, file));
    }
    return content;
}

/// The same without metadata.
[[nodiscard]] inline Tensors read(const std::filesystem::path& path) {
    return read_with_metadata(path).tensors;
}

} // namespace rtrain::checkpoint::safetensors
