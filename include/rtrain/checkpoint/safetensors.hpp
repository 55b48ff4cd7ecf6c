// SPDX-License-Identifier: Apache-2.0
/// @file
/// The safetensors format: an 8-byte little-endian header length, a JSON header with type, shape
/// and byte range of each tensor, then the bytes. It runs no code when loaded, opens with mmap, and
/// Python's safetensors package reads it. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <boost/json/object.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::checkpoint {

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Tensors = std::map<std::string, at::Tensor>;

inline constexpr std::array<std::pair<at::ScalarType, std::string_view>, 12> types{{
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
    {at::kFloat8_e4m3fn, "F8_E4M3"},
    {at::kFloat8_e5m2, "F8_E5M2"},
}};

[[nodiscard]] inline std::string_view type_name(const std::string& tensor, at::ScalarType type) {
    for (const auto& [known, name] : types) {
        if (known == type) {
            return name;
        }
    }
    throw CheckpointError("RT-K6", detail::concat("tensor \"", tensor, "\" has type ", type,
                                                  ", which safetensors cannot hold"));
}

/// Writes durably; returns after fsync.
inline void write(const std::filesystem::path& path, const Tensors& tensors) {
    boost::json::object header;
    std::uint64_t offset = 0;
    std::vector<at::Tensor> contents;
    for (const auto& [name, tensor] : tensors) {
        at::Tensor content = tensor.detach().cpu().contiguous();
        boost::json::array shape;
        for (const std::int64_t size : content.sizes()) {
            shape.emplace_back(size);
        }
        const std::uint64_t end = offset + content.nbytes();
        header[name] = {{"dtype", type_name(name, content.scalar_type())},
                        {"shape", std::move(shape)},
                        {"data_offsets", {offset, end}}};
        offset = end;
        contents.push_back(std::move(content));
    }
    std::string text = json::serialize(header);
    constexpr std::size_t alignment = 8;
    text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
    const std::uint64_t length = text.size();
    storage::OutputFile file(path);
    file.write(&length, sizeof length);
    file.write(text);
    for (const at::Tensor& content : contents) {
        file.write(content.const_data_ptr(), content.nbytes());
    }
    file.sync();
}

/// A file mapped read-only; private, so that writing to a loaded tensor does not reach the file.
class Mapping {
public:
    explicit Mapping(const std::filesystem::path& path) {
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) {
            throw storage::system_error("open", path);
        }
        struct stat status {};
        ::fstat(descriptor, &status);
        size_ = static_cast<std::size_t>(status.st_size);
        if (size_ > 0) {
            data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
        }
        ::close(descriptor);
        if (data_ == MAP_FAILED) {
            throw storage::system_error("map", path);
        }
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (data_ != nullptr) {
            ::munmap(data_, size_);
        }
    }
    [[nodiscard]] char* data() const noexcept { return static_cast<char*>(data_); }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

/// One entry of the header, checked against the bytes that there are.
[[nodiscard]] inline at::Tensor entry(const std::string& name, const boost::json::object& fields,
                                      const std::shared_ptr<Mapping>& file, std::size_t begin) {
    const std::string_view type = fields.at("dtype").as_string();
    const auto* const known = std::find_if(types.begin(), types.end(),
                                           [&](const auto& item) { return item.second == type; });
    if (known == types.end()) {
        throw std::invalid_argument("unknown type " + std::string(type));
    }
    const auto& offsets = fields.at("data_offsets").as_array();
    const auto from = offsets.at(0).to_number<std::uint64_t>();
    const auto to = offsets.at(1).to_number<std::uint64_t>();
    const std::uint64_t available = file->size() - begin;
    std::uint64_t bytes = c10::elementSize(known->first);
    std::vector<std::int64_t> shape;
    for (const auto& size : fields.at("shape").as_array()) {
        shape.push_back(size.to_number<std::int64_t>());
        if (shape.back() < 0 ||
            (shape.back() > 0 && bytes > available / static_cast<std::uint64_t>(shape.back()))) {
            throw std::invalid_argument("\"" + name + "\" has a shape beyond the file");
        }
        bytes *= static_cast<std::uint64_t>(shape.back());
    }
    if (from > to || to > available || to - from != bytes) {
        throw std::invalid_argument("\"" + name + "\" has a byte range that does not fit");
    }
    const auto options = at::TensorOptions(known->first);
    char* const data = file->data() + begin + from;
    if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(known->first) != 0) {
        at::Tensor copy = at::empty(shape, options); // other writers need not align
        std::memcpy(copy.data_ptr(), data, bytes);
        return copy;
    }
    return at::from_blob(
        data, shape, [file](void* /*data*/) {}, options);
}

/// Maps a file; tensors share its pages until they are written to. Throws CheckpointError [RT-K2]
/// when it is no safetensors file, is cut off, or contradicts itself.
[[nodiscard]] inline Tensors read(const std::filesystem::path& path) {
    const auto file = std::make_shared<Mapping>(path);
    try {
        std::uint64_t length = 0;
        if (file->size() < sizeof length) {
            throw std::invalid_argument("too short");
        }
        std::memcpy(&length, file->data(), sizeof length);
        if (length > file->size() - sizeof length) {
            throw std::invalid_argument("the header is cut off");
        }
        const std::size_t begin = sizeof length + length;
        const auto header =
            json::parse({file->data() + sizeof length, static_cast<std::size_t>(length)});
        Tensors tensors;
        for (const auto& item : header.as_object()) {
            const std::string name(item.key());
            if (name != "__metadata__") {
                tensors.emplace(name, entry(name, item.value().as_object(), file, begin));
            }
        }
        return tensors;
    } catch (const std::exception& error) {
        throw CheckpointError(
            "RT-K2",
            detail::concat(path.string(), " is no sound safetensors file: ", error.what()));
    }
}

} // namespace safetensors
} // namespace rtrain::checkpoint
