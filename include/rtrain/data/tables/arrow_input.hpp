// SPDX-License-Identifier: Apache-2.0
/// @file
/// A file of any of rtrain's file systems as an Arrow file.
#pragma once

#include <rtrain/data/tables/arrow_memory.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::detail {

/// Used by one thread at a time.
class ArrowInput final : public arrow::io::RandomAccessFile {
public:
    explicit ArrowInput(storage::RandomAccessFile file) : file_(std::move(file)) {}

    /// Rethrows the error of the file system: Arrow only handles its own errors.
    void rethrow() const {
        if (error_) {
            std::rethrow_exception(error_);
        }
    }

    arrow::Status Close() override {
        is_closed_ = true;
        return arrow::Status::OK();
    }
    [[nodiscard]] bool closed() const override { return is_closed_; }
    [[nodiscard]] arrow::Result<std::int64_t> Tell() const override { return position_; }
    arrow::Status Seek(std::int64_t position) override {
        position_ = position;
        return arrow::Status::OK();
    }
    [[nodiscard]] arrow::Result<std::int64_t> GetSize() override {
        return static_cast<std::int64_t>(file_.size());
    }

    [[nodiscard]] arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override {
        ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
        position_ += buffer->size();
        return buffer;
    }
    [[nodiscard]] arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
        ARROW_ASSIGN_OR_RAISE(const auto read, ReadAt(position_, bytes, out));
        position_ += read;
        return read;
    }

    using arrow::io::RandomAccessFile::ReadAt;
    [[nodiscard]] arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes,
                                                     void* out) override {
        if (position < 0 || bytes < 0) {
            return arrow::Status::Invalid("invalid range of ", bytes, " bytes at ", position);
        }
        try {
            return static_cast<std::int64_t>(
                file_.read_into(static_cast<std::uint64_t>(position),
                                {static_cast<char*>(out), static_cast<std::size_t>(bytes)}));
        } catch (const std::exception& error) {
            error_ = std::current_exception();
            return arrow::Status::IOError(error.what());
        }
    }
    [[nodiscard]] arrow::Result<std::shared_ptr<arrow::Buffer>>
    ReadAt(std::int64_t position, std::int64_t bytes) override {
        // The stated size of a file may exceed memory.
        const auto size = static_cast<std::int64_t>(file_.size());
        const auto most = std::min(bytes, size - std::clamp<std::int64_t>(position, 0, size));
        ARROW_ASSIGN_OR_RAISE(auto buffer,
                              arrow::AllocateResizableBuffer(std::max<std::int64_t>(most, 0),
                                                             ArrowMemory::instance()));
        ARROW_ASSIGN_OR_RAISE(const auto read,
                              ReadAt(position, bytes < 0 ? bytes : most, buffer->mutable_data()));
        ARROW_RETURN_NOT_OK(buffer->Resize(read, /*shrink_to_fit=*/false));
        return std::shared_ptr<arrow::Buffer>(std::move(buffer));
    }

private:
    storage::RandomAccessFile file_;
    std::int64_t position_ = 0;
    bool is_closed_ = false;
    std::exception_ptr error_;
};

} // namespace rtrain::detail
