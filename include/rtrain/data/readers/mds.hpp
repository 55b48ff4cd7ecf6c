// SPDX-License-Identifier: Apache-2.0
/// @file
/// MDS, the format of MosaicML's streaming.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/format/mds.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Options of read_mds().
struct MdsOptions {
    std::vector<std::string> columns = {};           ///< to read, in this order; empty: all
    std::size_t block_bytes = std::size_t{1} << 18U; ///< read at a time; at least one sample
    storage::TransferConfig transfer = {};           ///< timeouts and retries
};

/// The shards of a directory.
class MdsFiles : public FileFormat {
public:
    /// `directory` ends in '/'. Throws DataError as read_mds().
    MdsFiles(const std::string& directory, const storage::RandomAccessFile& index,
             MdsOptions options)
        : options_(std::move(options)) {
        const std::string text = read_exactly(index, 0, static_cast<std::size_t>(index.size()));
        std::vector<format::MdsShard> shards;
        try {
            shards = format::parse_mds_index(text);
        } catch (const std::invalid_argument& error) {
            throw DataError("RT-D37",
                            detail::concat(index.uri(), " is not an index of MDS shards: ",
                                           error.what(), "; write or copy it again"));
        }
        for (format::MdsShard& shard : shards) {
            const std::string path = directory + shard.name;
            if (!shard.compression.empty()) {
                throw DataError("RT-D38",
                                detail::concat(path, " is compressed by ", shard.compression,
                                               "; unpack it, or write with compression=None"));
            }
            if (shard.columns != shards.front().columns) {
                throw DataError("RT-D37", detail::concat(path, " has different columns than ",
                                                         directory, shards.front().name));
            }
            paths_.push_back(path);
            samples_[path] = {.bytes = shard.bytes, .samples = shard.samples};
        }
        if (shards.empty()) {
            throw DataError("RT-D25", index.uri() + " names no shard");
        }
        choose(shards.front().columns, index);
    }

    /// The paths of the shards, as given.
    [[nodiscard]] const std::vector<std::string>& paths() const noexcept { return paths_; }

    [[nodiscard]] std::string kind() const override {
        return "mds " + std::to_string(options_.block_bytes);
    }

    [[nodiscard]] FileIndex index(const storage::RandomAccessFile& file) const override {
        const Shard& shard = shard_of(file);
        if (file.size() != shard.bytes) {
            throw damaged(file, detail::concat("it has ", file.size(), " bytes; expected ",
                                               shard.bytes, ", according to index.json"));
        }
        const std::string head = head_of(file, shard);
        const auto offsets = offsets_in(head, file, shard);
        FileIndex index{.size = file.size(),
                        .modified_ns = file.modified_ns(),
                        .blocks = {},
                        .content = checkpoint::crc32c(head)};
        for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
            if (index.blocks.empty() || index.blocks.back().bytes >= options_.block_bytes) {
                index.blocks.push_back({.offset = offsets[row], .bytes = 0, .rows = 0});
            }
            FileBlock& block = index.blocks.back();
            block.bytes = offsets[row + 1] - block.offset;
            block.rows += 1;
        }
        return index;
    }

    [[nodiscard]] Batch read(const FileRows& rows) const override {
        constexpr std::size_t number = 4;
        const std::string bytes = rows.bytes();
        const std::string table =
            read_exactly(rows.file, number * (1 + static_cast<std::uint64_t>(rows.first_row)),
                         number * (1 + static_cast<std::size_t>(rows.block.rows)));
        std::vector<Column> columns;
        for (const Chosen& chosen : chosen_) {
            columns.emplace_back(chosen, rows.block.rows);
        }
        std::vector<std::string_view> values;
        for (std::int64_t row = 0; row < rows.block.rows; ++row) {
            const auto at = number * static_cast<std::size_t>(row);
            const std::uint64_t begin = format::mds::number_at(table, at);
            const std::uint64_t end = format::mds::number_at(table, at + number);
            if (begin < rows.block.offset || end < begin ||
                end - rows.block.offset > bytes.size()) {
                throw changed_file(rows.file, "its samples have moved");
            }
            try {
                format::split_mds_sample(
                    std::string_view(bytes).substr(begin - rows.block.offset, end - begin), all_,
                    values);
                for (std::size_t i = 0; i < columns.size(); ++i) {
                    columns[i].add(values[chosen_[i].place]);
                }
            } catch (const std::invalid_argument& error) {
                throw DataError("RT-D37", detail::concat(rows.name_of(row), ": ", error.what(),
                                                         "; write or copy the shard again"));
            }
        }
        Batch::Columns plain;
        Batch::RaggedColumns ragged;
        for (const Column& column : columns) {
            column.finish(plain, ragged);
        }
        return {std::move(plain), std::move(ragged)};
    }

private:
    struct Shard {
        std::uint64_t bytes = 0;
        std::int64_t samples = 0;
    };
    /// A column to read.
    struct Chosen {
        std::string name;
        std::size_t place; ///< in a sample
        format::MdsType type;
    };

    /// Its values in memory.
    class Column {
    public:
        Column(const Chosen& chosen, std::int64_t rows) : chosen_(&chosen), rows_(rows) {
            bytes_.reserve(chosen.type.bytes * static_cast<std::size_t>(rows));
        }
        void add(std::string_view value) {
            if (chosen_->type.bytes == 0) {
                texts_.add(value);
            } else {
                bytes_ += value;
            }
        }
        void finish(Batch::Columns& plain, Batch::RaggedColumns& ragged) const {
            if (chosen_->type.bytes == 0) {
                ragged.emplace_back(chosen_->name, texts_.finish());
                return;
            }
            std::vector<std::int64_t> shape{rows_};
            shape.insert(shape.end(), chosen_->type.shape.begin(), chosen_->type.shape.end());
            at::Tensor values = at::empty(shape, type_of(chosen_->type.element));
            std::memcpy(values.mutable_data_ptr(), bytes_.data(), bytes_.size());
            plain.emplace_back(chosen_->name, widened(values));
        }

    private:
        [[nodiscard]] static at::ScalarType type_of(std::string_view element) {
            static const std::map<std::string_view, at::ScalarType> types{
                {"uint8", at::kByte},    {"uint16", at::kUInt16}, {"uint32", at::kUInt32},
                {"uint64", at::kUInt64}, {"int8", at::kChar},     {"int16", at::kShort},
                {"int32", at::kInt},     {"int64", at::kLong},    {"float16", at::kHalf},
                {"float32", at::kFloat}, {"float64", at::kDouble}};
            return types.at(element);
        }

        /// libtorch has few operations for its larger unsigned types.
        [[nodiscard]] at::Tensor widened(const at::Tensor& values) const {
            if (values.scalar_type() == at::kUInt16) {
                return values.to(at::kInt);
            }
            if (values.scalar_type() == at::kUInt64) {
                const auto* const number = values.const_data_ptr<std::uint64_t>();
                constexpr auto most =
                    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
                if (std::any_of(number, number + values.numel(),
                                [](std::uint64_t one) { return one > most; })) {
                    throw DataError("RT-D38",
                                    detail::concat("column \"", chosen_->name,
                                                   "\" has a uint64 that int64 cannot hold; leave "
                                                   "the column out with MdsOptions::columns"));
                }
            }
            return values.scalar_type() == at::kUInt32 || values.scalar_type() == at::kUInt64
                       ? values.to(at::kLong)
                       : values;
        }

        const Chosen* chosen_;
        std::int64_t rows_;
        std::string bytes_;
        TextBuilder texts_;
    };

    void choose(const std::vector<format::MdsColumn>& all, const storage::RandomAccessFile& index) {
        all_ = all;
        std::vector<std::string> names = options_.columns;
        for (std::size_t i = 0; options_.columns.empty() && i < all.size(); ++i) {
            names.push_back(all[i].name);
        }
        for (const std::string& name : names) {
            const auto found = std::ranges::find(all, name, &format::MdsColumn::name);
            if (found == all.end()) {
                throw DataError("RT-D38", detail::concat(index.uri(), ": no column \"", name, '"'));
            }
            try {
                chosen_.push_back({.name = name,
                                   .place = static_cast<std::size_t>(found - all.begin()),
                                   .type = format::mds_type(*found)});
            } catch (const std::invalid_argument& error) {
                throw DataError(
                    "RT-D38", detail::concat(index.uri(), ": column \"", name, "\": ", error.what(),
                                             "; name the columns to read in MdsOptions::columns"));
            }
        }
    }

    [[nodiscard]] const Shard& shard_of(const storage::RandomAccessFile& file) const {
        return samples_.at(file.path());
    }

    /// A shard's table of samples, up to the offset of the first one.
    [[nodiscard]] static std::string head_of(const storage::RandomAccessFile& file,
                                             const Shard& shard) {
        const std::uint64_t table = table_bytes(shard);
        if (static_cast<std::uint64_t>(shard.samples) > file.size() || table > file.size()) {
            throw damaged(file, "it is too short for its number of samples");
        }
        return read_exactly(file, 0,
                            static_cast<std::size_t>(std::min(table + head_bytes, file.size())));
    }
    [[nodiscard]] static std::uint64_t table_bytes(const Shard& shard) {
        return static_cast<std::uint64_t>(shard.samples) * 4 + 8;
    }

    [[nodiscard]] static std::vector<std::uint32_t>
    offsets_in(std::string_view head, const storage::RandomAccessFile& file, const Shard& shard) {
        try {
            return format::mds_offsets(head.substr(0, table_bytes(shard)), shard.samples,
                                       file.size());
        } catch (const std::invalid_argument& error) {
            throw damaged(file, error.what());
        }
    }

    [[nodiscard]] static DataError damaged(const storage::RandomAccessFile& file,
                                           std::string_view why) {
        return {"RT-D37", detail::concat(file.uri(), " is not an intact MDS shard: ", why,
                                         "; write or copy it again")};
    }

    MdsOptions options_;
    std::vector<std::string> paths_;
    std::map<std::string, Shard> samples_; ///< by path
    std::vector<format::MdsColumn> all_;
    std::vector<Chosen> chosen_;
};

/// A directory written by MosaicML's MDSWriter: index.json and its shards, which must not be
/// compressed. Numbers of fixed size become the tensor type of the same name, except uint16 (int32)
/// and uint32, uint64 (int64). "int" is int64; "ndarray" with type and shape is a tensor of that
/// shape a row. "bytes", "str", and data stored as text or as an image file are ragged bytes. Files
/// are listed when the data set is first read. Throws DataError then: as list_files(), RT-D29 a
/// file has changed, RT-D37 a file is damaged, RT-D38 an unsupported column or compression.
///
/// @code
/// auto samples = rtrain::data::read_mds("s3://bucket/train", {.columns = {"tokens"}});
/// @endcode
[[nodiscard]] inline Dataset read_mds(std::string directory, MdsOptions options = {}) {
    return lazy([directory = std::move(directory), options = std::move(options)] {
        const std::string base = directory.ends_with('/') ? directory : directory + "/";
        const FileOptions files{.endings = {}, .transfer = options.transfer};
        const auto index = list_files(base + "index.json", files).front();
        const std::string& path = index.path();
        auto shards = std::make_shared<const MdsFiles>(
            path.substr(0, path.size() - std::string_view("index.json").size()), index, options);
        std::vector<storage::RandomAccessFile> found;
        for (const std::string& shard : shards->paths()) {
            const auto entry = index.filesystem().look_at(shard);
            if (!entry || entry->is_directory) {
                throw DataError("RT-D25", index.filesystem().uri(shard) +
                                              ": no such file, though index.json names it");
            }
            found.emplace_back(index.filesystem(), shard, entry->size, entry->modified_ns,
                               options.transfer);
        }
        return from_blocks(std::make_shared<const FileBlocks>(std::move(found), std::move(shards)));
    });
}

} // namespace rtrain::data
