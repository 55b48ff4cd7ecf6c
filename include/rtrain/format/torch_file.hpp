// SPDX-License-Identifier: Apache-2.0
/// @file
/// Weights in PyTorch's own files: reads files of torch.save without running code in them, and
/// writes files that torch.load(weights_only=True) reads, also with mmap=True.
///
/// A file is a zip file: data.pkl describes the tensors, data/0, data/1, ... hold their bytes.
/// libtorch cannot read a state_dict from it: torch::pickle_load returns None.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/pickle/pickle_reader.hpp>
#include <rtrain/format/pickle/pickle_writer.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/format/zip_directory.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

using Tensors = safetensors::Tensors;

namespace torch_file {

inline constexpr std::array<std::pair<at::ScalarType, std::string_view>, 20> types{{
    {at::kDouble, "float64"},
    {at::kFloat, "float32"},
    {at::kHalf, "float16"},
    {at::kBFloat16, "bfloat16"},
    {at::kLong, "int64"},
    {at::kInt, "int32"},
    {at::kShort, "int16"},
    {at::kChar, "int8"},
    {at::kByte, "uint8"},
    {at::kBool, "bool"},
    {at::kComplexDouble, "complex128"},
    {at::kComplexFloat, "complex64"},
    {at::kUInt64, "uint64"},
    {at::kUInt32, "uint32"},
    {at::kUInt16, "uint16"},
    {at::kFloat8_e4m3fn, "float8_e4m3fn"},
    {at::kFloat8_e5m2, "float8_e5m2"},
    {at::kFloat8_e8m0fnu, "float8_e8m0fnu"},
    {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz"},
    {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz"},
}};
static_assert(std::all_of(pickle::element_types.begin(), pickle::element_types.end(),
                          [](const auto& element) {
                              return std::any_of(types.begin(), types.end(), [&](const auto& type) {
                                  return type.second == element.dtype;
                              });
                          }));

/// An open file of torch.save.
class Reader {
public:
    explicit Reader(const std::filesystem::path& path)
        : file_(std::make_shared<storage::Mapping>(path)) {
        const auto bytes = file_->bytes();
        if (std::string_view(bytes.data(), std::min<std::size_t>(bytes.size(), 2)) == "\x80\x02") {
            throw std::invalid_argument(
                "it has the format used before PyTorch 1.6; load it in Python "
                "and save it again with torch.save");
        }
        records_ = parse_zip_directory(bytes);
        for (const auto& [name, record] : records_) {
            const std::size_t slash = name.find('/');
            if (slash != std::string::npos && name.substr(slash) == "/data.pkl") {
                prefix_ = name.substr(0, slash + 1);
            }
        }
        if (prefix_.empty()) {
            throw std::invalid_argument("it has no data.pkl, so torch.save did not write it");
        }
        if (records_.contains(prefix_ + "constants.pkl")) {
            throw std::invalid_argument(
                "it is a TorchScript program; load it with torch::jit::load");
        }
        if (records_.contains(prefix_ + "byteorder") && text("byteorder") != "little") {
            throw std::invalid_argument("it was written by a big-endian machine");
        }
    }

    [[nodiscard]] Tensors read() {
        Tensors tensors;
        for (const auto& [name, info] : parse_pickled_tensors(text("data.pkl"))) {
            tensors.emplace(name, storage(info).as_strided(info.shape, info.strides, info.offset));
        }
        return tensors;
    }

private:
    /// Returns the bytes of a record, verified.
    [[nodiscard]] std::string_view text(const std::string& name) const {
        const auto found = records_.find(prefix_ + name);
        if (found == records_.end()) {
            throw std::invalid_argument("it has no record \"" + name + '"');
        }
        const ZipRecord& record = found->second;
        if (!record.stored) {
            throw std::invalid_argument("record \"" + name + "\" is compressed or encrypted");
        }
        const std::string_view bytes(file_->data() + record.offset,
                                     static_cast<std::size_t>(record.size));
        if (record.crc != 0 &&
            record.crc !=
                ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())) {
            throw std::invalid_argument("record \"" + name + "\" does not match its checksum");
        }
        return bytes;
    }

    /// Returns a whole storage as a 1-D tensor, shared by its tensors.
    [[nodiscard]] at::Tensor storage(const PickledTensor& info) {
        const auto [known, added] = dtypes_.emplace(info.storage, info.dtype);
        if (known->second != info.dtype) {
            throw std::invalid_argument("storage " + info.storage + " is used with two types");
        }
        at::Tensor& content = storages_[{info.storage, info.conjugate, info.negative}];
        if (content.defined()) {
            return content;
        }
        content = view(info);
        if (info.conjugate && content.is_complex()) {
            content = content.conj().resolve_conj();
        }
        if (info.negative && content.scalar_type() != at::kBool) {
            content = content.neg();
        }
        return content;
    }
    [[nodiscard]] at::Tensor view(const PickledTensor& info) {
        const std::string_view bytes = text("data/" + info.storage);
        if (bytes.size() != info.storage_bytes) {
            throw std::invalid_argument("storage " + info.storage + " is not as large as declared");
        }
        const auto* const type = std::find_if(types.begin(), types.end(), [&](const auto& item) {
            return item.second == info.dtype;
        });
        const auto element = c10::elementSize(type->first);
        const auto count = static_cast<std::int64_t>(bytes.size() / element);
        const auto options = at::TensorOptions(type->first);
        char* const data = file_->data() + (bytes.data() - file_->data());
        if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {
            at::Tensor copy = at::empty(count, options);
            std::memcpy(copy.data_ptr(), data, static_cast<std::size_t>(count) * element);
            return copy;
        }
        return at::from_blob(
            data, count, [file = file_](void* /*data*/) {}, options);
    }

    std::shared_ptr<storage::Mapping> file_;
    ZipDirectory records_;
    std::string prefix_;
    std::map<std::string, std::string_view> dtypes_;
    std::map<std::tuple<std::string, bool, bool>, at::Tensor> storages_;
};

/// Returns type and shape of a tensor that will be stored contiguously.
[[nodiscard]] inline PickledTensor describe(const std::string& name, const at::Tensor& tensor) {
    const char* const kind = !tensor.defined()                 ? "is undefined"
                             : tensor.is_meta()                ? "is a meta tensor"
                             : tensor.layout() != at::kStrided ? "is sparse"
                                                               : nullptr;
    const auto* const type = kind != nullptr
                                 ? types.end()
                                 : std::find_if(types.begin(), types.end(), [&](const auto& item) {
                                       return item.first == tensor.scalar_type();
                                   });
    if (type == types.end()) {
        throw CheckpointError(
            "RT-K23",
            detail::concat("tensor \"", name, "\" ",
                           kind != nullptr ? kind
                                           : detail::concat("has type ", tensor.scalar_type()),
                           ", which rtrain cannot write to PyTorch files"));
    }
    PickledTensor info;
    info.dtype = type->second;
    info.storage_bytes = tensor.nbytes();
    info.shape = tensor.sizes().vec();
    info.strides.resize(info.shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = info.shape.size(); i-- > 0;) {
        info.strides[i] = stride;
        stride *= std::max<std::int64_t>(info.shape[i], 1);
    }
    return info;
}

/// Lets libtorch's zip writer write to `file`. Errors are thrown from here, not through libtorch.
class Archive {
public:
    explicit Archive(storage::OutputFile& file)
        : writer_([this, &file](const void* data, std::size_t bytes) {
              try {
                  if (!failure_) {
                      file.write(data, bytes);
                      return bytes;
                  }
              } catch (...) {
                  failure_ = std::current_exception();
              }
              return std::size_t{0};
          }) {}
    Archive(const Archive&) = delete;
    Archive& operator=(const Archive&) = delete;
    ~Archive() {
        try {
            writer_.writeEndOfFile(); // else its destructor would, which must not throw
        } catch (...) {
        }
    }
    void record(const std::string& name, const void* data, std::size_t bytes) {
        attempt([&] { writer_.writeRecord(name, data, bytes); });
    }
    void finish() {
        attempt([&] { writer_.writeEndOfFile(); });
    }

private:
    template <class Action>
    void attempt(Action&& action) {
        try {
            action();
        } catch (...) {
            if (!failure_) {
                throw;
            }
        }
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }
    std::exception_ptr failure_;
    caffe2::serialize::PyTorchStreamWriter writer_;
};

} // namespace torch_file

/// Reads the weights of a file of torch.save: a state_dict, or dictionaries and lists of tensors,
/// whose names are joined by dots. Values that are not tensors are ignored. No code in the file is
/// run, and checksums are verified. Tensors share the file's pages until they are modified, and
/// tensors that shared a storage still do. Throws CheckpointError: RT-K21 the file is damaged or
/// not such a file, RT-K22 it contains more than weights, named in the message; StorageError
/// [RT-S3, RT-S4] if it cannot be read.
[[nodiscard]] inline Tensors read_torch_file(const std::filesystem::path& path) {
    try {
        return torch_file::Reader(path).read();
    } catch (const Error&) {
        throw;
    } catch (const std::bad_alloc&) { // not the file's fault
        throw;
    } catch (const ForeignObject& error) {
        throw CheckpointError(
            "RT-K22", detail::concat(path.string(), " contains more than weights: ", error.what(),
                                     "; load it in Python and save its state_dict() alone"));
    } catch (const std::exception& error) {
        throw CheckpointError(
            "RT-K21",
            detail::concat(path.string(), " is not a valid PyTorch weights file: ", error.what()));
    }
}

/// Writes a state_dict durably; returns after fsync. Tensors that share memory, such as tied
/// weights, are written once. Throws CheckpointError [RT-K23] for tensors that cannot be written.
inline void write_torch_file(const std::filesystem::path& path, const Tensors& tensors) {
    std::map<std::string, PickledTensor> infos;
    std::map<std::tuple<const void*, std::uint64_t, std::string_view>, std::string> places;
    std::vector<at::Tensor> contents;
    for (const auto& [name, tensor] : tensors) {
        PickledTensor info = torch_file::describe(name, tensor);
        info.storage = std::to_string(contents.size());
        if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
            tensor.nbytes() > 0) {
            info.storage =
                places
                    .try_emplace({tensor.const_data_ptr(), info.storage_bytes, info.dtype},
                                 info.storage)
                    .first->second;
        }
        if (info.storage == std::to_string(contents.size())) {
            contents.push_back(tensor);
        }
        infos.emplace(name, std::move(info));
    }
    std::string pickle;
    try {
        pickle = make_pickle(infos);
    } catch (const std::invalid_argument& error) {
        throw CheckpointError(
            "RT-K23",
            detail::concat("these tensors do not fit into a PyTorch file: ", error.what()));
    }
    storage::OutputFile file(path);
    {
        constexpr std::string_view byte_order = "little";
        torch_file::Archive archive(file);
        archive.record("data.pkl", pickle.data(), pickle.size());
        archive.record("byteorder", byte_order.data(), byte_order.size());
        for (std::size_t i = 0; i < contents.size(); ++i) {
            const at::Tensor content =
                contents[i].detach().resolve_conj().resolve_neg().cpu().contiguous();
            archive.record("data/" + std::to_string(i), content.const_data_ptr(), content.nbytes());
        }
        archive.finish();
    }
    file.sync();
}

} // namespace rtrain::checkpoint
