// SPDX-License-Identifier: Apache-2.0
/// @file
/// CSV files as data sets. Part of the component arrow: the program links rtrain::arrow.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/data/files/partitions.hpp>
#include <rtrain/data/tables/arrow_columns.hpp>
#include <rtrain/data/tables/arrow_forms.hpp>
#include <rtrain/data/tables/csv_blocks.hpp>
#include <rtrain/data/tables/csv_options.hpp>
#include <rtrain/data/tables/csv_tables.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// CSV files in blocks of about 256 KiB. Reads all files once to find the ends of rows.
class CsvSource final : public Dataset::BlockSource {
public:
    /// Throws DataError [RT-D29], [RT-D31], [RT-D41], [RT-D43] to [RT-D51], and StorageError.
    CsvSource(const std::vector<storage::RandomAccessFile>& files, CsvOptions options)
        : options_(std::move(options)), bad_(options_.on_error, options_.max_errors),
          tables_(options_) {
        require_usable(options_);
        const auto indices = index_all(files);
        for (std::size_t i = 0; i < files.size(); ++i) {
            add(files[i], *indices[i]);
        }
        find_types();
    }

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const Place& place : places_) {
            blocks.push_back({.rows = place.rows,
                              .bytes = static_cast<std::int64_t>(bytes_of_text_ *
                                                                 static_cast<double>(place.bytes)),
                              .content = files_[place.file].content});
        }
        return blocks;
    }

    /// Throws DataError [RT-D29], [RT-D34], [RT-D42], [RT-D49], [RT-D50], and StorageError.
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const Place& place = places_[static_cast<std::size_t>(block)];
        const storage::RandomAccessFile& file = files_[place.file].input;
        return with_sound_index(file, tables_.format().kind(), [&] {
            require_unchanged(file);
            Batch batch = rows_at(place);
            if (batch.size() != place.rows) {
                throw changed_file(file, detail::concat("it has ", batch.size(), " rows, and had ",
                                                        place.rows, " before"));
            }
            return batch;
        });
    }

    [[nodiscard]] std::size_t file_of(std::int64_t block) const {
        return places_[static_cast<std::size_t>(block)].file;
    }

    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        const Place& place = places_[static_cast<std::size_t>(block)];
        return detail::concat(files_[place.file].input.uri(), ", rows ", place.first_row, " to ",
                              place.first_row + place.rows - 1);
    }

private:
    using Types = CsvTables::Types;

    struct File {
        storage::RandomAccessFile input;
        std::vector<std::string> names; ///< of all columns
        std::uint32_t content = 0;
    };
    struct Place {
        std::size_t file = 0;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::int64_t first_row = 0; ///< in the file, without the header
        std::int64_t rows = 0;
    };

    [[nodiscard]] Batch rows_at(const Place& place) const {
        const std::string text = text_of(place);
        try {
            return batch_of(place, *tables_.exact_table(part_of(place), text, types_));
        } catch (const DataError& error) {
            if (options_.on_error == OnError::raise || !CsvTables::is_of_row(error)) {
                throw;
            }
        }
        return good_rows_of(place, text);
    }

    void add(const storage::RandomAccessFile& input, const FileIndex& index) {
        const std::size_t number = files_.size();
        files_.push_back({input, options_.names, index.content});
        File& file = files_.back();
        if (file.names.empty()) {
            const std::uint64_t end =
                index.blocks.empty() ? input.size() : index.blocks.front().offset;
            std::string header = read_exactly(input, 0, end);
            if (header.starts_with(byte_order_mark)) {
                header.erase(0, byte_order_mark.size());
            }
            header = tables_.without_comments(header, input.uri(), options_.skip_rows);
            if (header.find_first_not_of("\r\n") == std::string::npos) {
                throw DataError("RT-D45",
                                detail::concat(input.uri(), " has no row; expected a header with "
                                                            "the names of the columns, or .names"));
            }
            file.names =
                tables_.table({input.uri(), file.names}, header, {})->schema()->field_names();
        }
        require_columns(file);
        std::int64_t row = 0;
        for (const FileBlock& block : index.blocks) {
            places_.push_back({number, block.offset, block.bytes, row, block.rows});
            row += block.rows;
        }
    }

    [[nodiscard]] std::vector<std::shared_ptr<const FileIndex>>
    index_all(const std::vector<storage::RandomAccessFile>& files) const {
        constexpr std::uint64_t step = std::uint64_t{1} << 22U;
        const auto format = tables_.format();
        return index_files(files, format.kind(), [&](const storage::RandomAccessFile& input) {
            const std::uint64_t begin = after_byte_order_mark(input);
            detail::CsvBlocks blocks(format, input.uri(), begin);
            checkpoint::Crc32c content;
            for (std::uint64_t at = begin; at < input.size(); at += step) {
                const std::string text = read_exactly(input, at, std::min(step, input.size() - at));
                content.add(text);
                blocks.feed(text);
            }
            return FileIndex{input.size(), input.modified_ns(), blocks.finish(), content.sum()};
        });
    }

    [[nodiscard]] static std::uint64_t
    after_byte_order_mark(const storage::RandomAccessFile& input) {
        const std::string text = input.read_at(0, 4);
        refuse_packed(text, input.uri());
        if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
            throw DataError("RT-D48", input.uri() + " is UTF-16; convert it to UTF-8");
        }
        return text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
    }

    void require_columns(const File& file) {
        const std::string name = file.input.uri();
        arrow::FieldVector fields;
        for (const std::string& column : file.names) {
            fields.push_back(arrow::field(column, arrow::utf8()));
        }
        const arrow::Schema schema(std::move(fields));
        if (tables_.columns.empty()) {
            tables_.columns = file.names;
        }
        static_cast<void>(
            detail::choose_fields(schema, tables_.columns, options_.columns.empty(), name));
        for (const auto& [column, type] : options_.types) {
            static_cast<void>(detail::choose_fields(schema, {column}, false, name));
        }
    }

    /// Determines the column types from the first rows.
    void find_types() {
        types_ = options_.types;
        if (places_.empty()) {
            return;
        }
        const Place& place = places_.front();
        const bool skips = options_.on_error == OnError::skip;
        // Bad rows must not cause an error here, and do not count for types.
        const auto table =
            tables_.table(part_of(place), text_of(place), skips ? Types() : types_, skips);
        for (const std::string& column : tables_.columns) {
            const auto type = table->GetColumnByName(column)->type();
            if (type->id() == arrow::Type::TIMESTAMP) { // whatever the precision of these rows
                types_.emplace(
                    column,
                    arrow::timestamp(arrow::TimeUnit::NANO,
                                     static_cast<const arrow::TimestampType&>(*type).timezone()));
                continue;
            }
            // None of these rows has a value; most such columns hold numbers.
            types_.emplace(column, type->id() == arrow::Type::NA ? arrow::float64() : type);
        }
        std::int64_t bytes = 0;
        batch_of(place, *table).each_column([&](const at::Tensor& tensor) {
            bytes += static_cast<std::int64_t>(tensor.nbytes());
        });
        bytes_of_text_ = static_cast<double>(bytes) / static_cast<double>(place.bytes);
    }

    [[nodiscard]] CsvPart part_of(const Place& place) const {
        const File& file = files_[place.file];
        return {file.input.uri(), file.names, place.first_row};
    }

    [[nodiscard]] Batch batch_of(const Place& place, const arrow::Table& table) const {
        return detail::batch_of(table, tables_.columns, files_[place.file].input.uri(),
                                place.first_row);
    }

    [[nodiscard]] std::string text_of(const Place& place) const {
        const storage::RandomAccessFile& file = files_[place.file].input;
        return tables_.without_comments(read_exactly(file, place.offset, place.bytes), file.uri());
    }

    /// The rows of a block; each bad row is replaced by the last good one before it.
    [[nodiscard]] Batch good_rows_of(const Place& place, const std::string& text) const {
        detail::CsvBlocks each_row(tables_.format_of_rows(), files_[place.file].input.uri(), 0);
        each_row.feed(text);
        GoodRows good;
        add_good_rows(place, text, each_row.finish(), place.first_row, good);
        good.stand_ins.require_good(tables_.row_name(part_of(place), 1), "row");
        return with_stand_ins(concatenate(good.batches), good.stand_ins);
    }

    struct GoodRows {
        std::vector<Batch> batches;
        ReplacementRows stand_ins;
    };
    /// Bisects unreadable text until the bad rows are found. `rows`: their positions in `text`.
    void add_good_rows(const Place& block, const std::string& text, std::span<const FileBlock> rows,
                       std::int64_t first_row, GoodRows& good) const {
        const FileBlock& last = rows.back();
        const std::uint64_t begin = rows.front().offset;
        const Place place{.file = block.file,
                          .offset = block.offset + begin,
                          .bytes = last.offset + last.bytes - begin,
                          .first_row = first_row,
                          .rows = std::ssize(rows)};
        try {
            good.batches.push_back(batch_of(
                place,
                *tables_.exact_table(part_of(place),
                                     std::string_view(text).substr(begin, place.bytes), types_)));
            for (std::size_t i = 0; i < rows.size(); ++i) {
                good.stand_ins.add(true);
            }
        } catch (const DataError& error) {
            if (!CsvTables::is_of_row(error)) {
                throw;
            }
            if (rows.size() == 1) {
                bad_.add(error, files_[place.file].input.uri(), first_row);
                good.stand_ins.add(false);
                return;
            }
            const std::size_t half = rows.size() / 2;
            add_good_rows(block, text, rows.first(half), first_row, good);
            add_good_rows(block, text, rows.subspan(half),
                          first_row + static_cast<std::int64_t>(half), good);
        }
    }

    static constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

    CsvOptions options_;
    BadRows bad_;
    CsvTables tables_;
    std::vector<File> files_;
    std::vector<Place> places_;
    Types types_;
    double bytes_of_text_ = 1; ///< in memory per byte of text
};

/// The rows of CSV files: a file, those below a directory that end in .csv, a glob, or a list of
/// these. They may be on a storage service (files.hpp). Files are opened by the processes that read
/// them, not by one that only launches others.
///
/// The first 256 KiB determine the types of columns, as in pyarrow: int64, double, bool, dates and
/// times (int64, see arrow_forms.hpp), else text (Ragged). Timestamps are in nanoseconds. The types
/// apply to all files, which have the same columns in any order. An integer that a column of
/// doubles does not hold exactly is an error. A missing number is NaN, or is masked in a column of
/// integers: batch.valid(). On the first read, throws DataError [RT-D25] to [RT-D29], [RT-D31],
/// [RT-D41] to [RT-D51], and StorageError.
///
/// @code
/// .datasets = {{"train", rtrain::data::read_csv("data/*.csv", {.columns = {"x", "label"}})}}
/// @endcode
[[nodiscard]] inline Dataset read_csv(Paths paths, CsvOptions options = {}) {
    options.files.unpacks = true;
    return lazy([paths = std::move(paths), options = std::move(options)] {
        const auto files = open_files(paths, options.files);
        return from_partitioned(paths, options.files, files, options.columns,
                                [&](std::vector<std::string> columns) {
                                    CsvOptions chosen = options;
                                    chosen.columns = std::move(columns);
                                    return std::make_shared<const CsvSource>(files, chosen);
                                });
    });
}

} // namespace rtrain::data
