// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets in files: the blocks of their indices, read by a FileFormat.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/partitions.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// A block of a file, and its names in messages.
struct FileRows {
    const storage::RandomAccessFile& file;
    const FileBlock& block;
    std::int64_t first_row; ///< in the file, from 0

    /// The bytes of the block in the file. Throws DataError [RT-D29].
    [[nodiscard]] std::string bytes() const {
        return read_exactly(file, block.offset, static_cast<std::size_t>(block.bytes));
    }
    /// "logs/a.json, row 17" for row `row` of the block. Rows count from 0.
    [[nodiscard]] std::string name_of(std::int64_t row) const {
        return detail::concat(file.uri(), ", row ", first_row + row);
    }
};

/// Converts files of a format to batches. Called by several threads concurrently.
class FileFormat {
public:
    FileFormat() = default;
    FileFormat(const FileFormat&) = delete;
    FileFormat& operator=(const FileFormat&) = delete;
    virtual ~FileFormat() = default;
    /// The inputs of index() other than the file: "lines 262144".
    [[nodiscard]] virtual std::string kind() const = 0;
    [[nodiscard]] virtual FileIndex index(const storage::RandomAccessFile& file) const = 0;
    /// All rows of a block.
    [[nodiscard]] virtual Batch read(const FileRows& rows) const = 0;
};

/// The blocks of consecutive files.
class FileBlocks : public Dataset::BlockSource {
public:
    /// Indexes the files that have no index yet.
    FileBlocks(std::vector<storage::RandomAccessFile> files,
               std::shared_ptr<const FileFormat> format)
        : files_(std::move(files)), format_(std::move(format)) {
        indices_ = index_files(files_, format_->kind(),
                               [&](const auto& file) { return format_->index(file); });
        for (std::size_t file = 0; file < files_.size(); ++file) {
            std::int64_t row = 0;
            for (std::size_t block = 0; block < indices_[file]->blocks.size(); ++block) {
                places_.push_back({.file = file, .block = block, .first_row = row});
                row += indices_[file]->blocks[block].rows;
            }
        }
    }

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const Place& place : places_) {
            const FileBlock& block = block_of(place);
            blocks.push_back({.rows = block.rows,
                              .bytes = static_cast<std::int64_t>(block.bytes),
                              .content = indices_[place.file]->content});
        }
        return blocks;
    }

    /// Throws DataError [RT-D29] if the file has changed since it was indexed, and exceptions of
    /// the format.
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const Place& place = places_.at(static_cast<std::size_t>(block));
        const FileRows rows = rows_of(place);
        return with_sound_index(rows.file, format_->kind(), [&] {
            require_unchanged(rows.file);
            Batch batch = format_->read(rows);
            if (batch.size() != rows.block.rows) {
                throw changed_file(rows.file,
                                   detail::concat("it has ", batch.size(), " rows, and had ",
                                                  rows.block.rows, " before"));
            }
            return batch;
        });
    }

    [[nodiscard]] std::size_t file_of(std::int64_t block) const {
        return places_.at(static_cast<std::size_t>(block)).file;
    }

    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        const Place& place = places_.at(static_cast<std::size_t>(block));
        return detail::concat(files_[place.file].uri(), ", rows ", place.first_row, " to ",
                              place.first_row + block_of(place).rows - 1);
    }

private:
    struct Place {
        std::size_t file;
        std::size_t block; ///< in the file
        std::int64_t first_row;
    };
    [[nodiscard]] const FileBlock& block_of(const Place& place) const {
        return indices_[place.file]->blocks[place.block];
    }
    [[nodiscard]] FileRows rows_of(const Place& place) const {
        return {.file = files_[place.file], .block = block_of(place), .first_row = place.first_row};
    }

    std::vector<storage::RandomAccessFile> files_;
    std::shared_ptr<const FileFormat> format_;
    std::vector<std::shared_ptr<const FileIndex>> indices_;
    std::vector<Place> places_;
};

/// A data set of files that are listed and indexed on first read. `make_format` creates the
/// FileFormat from the files found and those of `columns` that they have.
template <class MakeFormat>
[[nodiscard]] Dataset read_files(Paths paths, FileOptions options, std::vector<std::string> columns,
                                 MakeFormat make_format) {
    return lazy([paths = std::move(paths), options = std::move(options),
                 columns = std::move(columns), make_format = std::move(make_format)] {
        const auto files = open_files(paths, options);
        return from_partitioned(
            paths, options, files, columns, [&](std::vector<std::string> of_files) {
                std::shared_ptr<const FileFormat> format = make_format(files, std::move(of_files));
                return std::make_shared<const FileBlocks>(files, std::move(format));
            });
    });
}

/// The same where a `Format` is made of options with `columns` and the first file.
template <class Format, class Options>
[[nodiscard]] Dataset read_files_as(Paths paths, FileOptions files, Options options) {
    auto columns = options.columns;
    return read_files(
        std::move(paths), std::move(files), std::move(columns),
        [options = std::move(options)](const auto& found, std::vector<std::string> of_files) {
            Options chosen = options;
            chosen.columns = std::move(of_files);
            return std::make_shared<const Format>(std::move(chosen), found.front());
        });
}

/// Collects texts as a ragged column of bytes.
class TextBuilder {
public:
    void add(std::string_view text) {
        bytes_ += text;
        offsets_.push_back(static_cast<std::int64_t>(bytes_.size()));
    }
    /// Keeps only the first rows.
    void truncate(std::size_t rows) {
        offsets_.resize(rows + 1);
        bytes_.resize(static_cast<std::size_t>(offsets_.back()));
    }
    [[nodiscard]] Ragged finish() const {
        at::Tensor values = at::empty({static_cast<std::int64_t>(bytes_.size())}, at::kByte);
        if (!bytes_.empty()) {
            std::memcpy(values.mutable_data_ptr(), bytes_.data(), bytes_.size());
        }
        return {std::move(values), at::tensor(offsets_, at::kLong)};
    }

private:
    std::string bytes_;
    std::vector<std::int64_t> offsets_{0};
};

/// Expands the good rows of a block to all its rows: each bad row is replaced.
[[nodiscard]] inline Batch with_stand_ins(const Batch& good, const ReplacementRows& stand_ins) {
    return stand_ins.all_are_good() ? good
                                    : select_rows(good, at::tensor(stand_ins.rows(), at::kLong));
}

} // namespace rtrain::data
