// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parquet files as data sets. Part of the component arrow: the program links rtrain::arrow.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/partitions.hpp>
#include <rtrain/data/tables/arrow_columns.hpp>
#include <rtrain/data/tables/arrow_forms.hpp>
#include <rtrain/data/tables/arrow_input.hpp>
#include <rtrain/data/tables/arrow_memory.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <ATen/Functions.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#if __has_include(<parquet/size_statistics.h>) // since Arrow 19
#include <parquet/size_statistics.h>
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Options of read_parquet().
struct ParquetOptions {
    /// The columns to read, in this order; all if empty. Others are not read from the files.
    std::vector<std::string> columns = {};
    FileOptions files = {.endings = {".parquet"}}; ///< which files to read
};

/// Row groups of Parquet files. Opens each file once for its metadata, which stays in memory, and
/// again for each row group that is read.
class ParquetSource final : public Dataset::BlockSource {
public:
    /// Throws DataError [RT-D40], [RT-D41], [RT-D43], [RT-D44], and StorageError.
    ParquetSource(const std::vector<storage::RandomAccessFile>& files, ParquetOptions options)
        : reads_all_(options.columns.empty()), columns_(std::move(options.columns)) {
        for (const storage::RandomAccessFile& file : files) {
            add(file);
        }
    }

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const Group& group : groups_) {
            blocks.push_back(group.block);
        }
        return blocks;
    }

    /// Throws DataError [RT-D29], [RT-D40], [RT-D42], and StorageError.
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const Group& group = groups_[static_cast<std::size_t>(block)];
        const File& file = files_[group.file];
        require_unchanged(file.input);
        const Opened opened(file.input, file.metadata);
        std::shared_ptr<arrow::Table> table;
        const auto read = [&](const std::vector<int>& leaves) {
            return opened.reader->RowGroup(group.number)->ReadTable(leaves, &table);
        };
        try {
            opened.require(name_of(block), [&] { return read(file.leaves); });
        } catch (const DataError&) {
            for (std::size_t i = 0; i < columns_.size(); ++i) { // finds the column that fails
                opened.require(detail::concat("column \"", columns_[i], "\" of ", name_of(block)),
                               [&] { return read({file.leaves[i]}); });
            }
            throw;
        }
        if (table->num_rows() != group.block.rows) {
            throw DataError("RT-D40", detail::concat(name_of(block), " has ", table->num_rows(),
                                                     " rows, but the metadata of the file has ",
                                                     group.block.rows, "; the file is damaged"));
        }
        return detail::batch_of(*table, columns_, file.input.uri(), group.first_row);
    }

    /// Reads pages as needed, about 1 MiB of rows at a time. Throws as read().
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        return std::make_unique<Pages>(*this, block, first_row);
    }

    [[nodiscard]] std::size_t file_of(std::int64_t block) const {
        return groups_[static_cast<std::size_t>(block)].file;
    }

    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        const Group& group = groups_[static_cast<std::size_t>(block)];
        return detail::concat(files_[group.file].input.uri(), ", rows ", group.first_row, " to ",
                              group.first_row + group.block.rows - 1);
    }

private:
    struct File {
        storage::RandomAccessFile input;
        std::shared_ptr<parquet::FileMetaData> metadata;
        std::vector<int> leaves;   ///< the leaf index in Parquet of each column
        std::uint32_t content = 0; ///< as in FileIndex: of the metadata, including statistics
    };
    struct Group {
        std::size_t file = 0;
        int number = 0;             ///< in the file
        std::int64_t first_row = 0; ///< in the file
        Block block;
    };

    /// A file and Arrow's reader of it.
    struct Opened {
        /// `rows_at_a_time`: 0 if columns are read whole.
        explicit Opened(const storage::RandomAccessFile& file,
                        std::shared_ptr<parquet::FileMetaData> metadata = nullptr,
                        std::int64_t rows_at_a_time = 0)
            : input(std::make_shared<detail::ArrowInput>(file)) {
            parquet::ReaderProperties properties(detail::ArrowMemory::instance());
            properties.set_page_checksum_verification(true);
            parquet::ArrowReaderProperties to_arrow(/*use_threads=*/false);
            if (rows_at_a_time > 0) {
                properties.enable_buffered_stream();
                properties.set_buffer_size(1 << 14U); // it grows if pages are smaller
                to_arrow.set_batch_size(rows_at_a_time);
            }
            to_arrow.set_pre_buffer(false); // it would read on Arrow's threads
            parquet::arrow::FileReaderBuilder builder;
            require(file.uri(),
                    [&] { return builder.Open(input, properties, std::move(metadata)); });
            builder.memory_pool(detail::ArrowMemory::instance())->properties(to_arrow);
            require(file.uri(), [&] { return builder.Build(&reader); });
        }

        /// Converts the errors of `call`, returned or thrown, to rtrain's.
        template <class Call>
        void require(const std::string& what, Call&& call) const {
            std::string text;
            try {
                const arrow::Status status = call();
                if (status.ok()) {
                    return;
                }
                text = status.message();
            } catch (const Error&) {
                throw;
            } catch (const std::exception& error) {
                text = error.what();
            }
            input->rethrow();
            throw DataError(
                "RT-D40", detail::concat("cannot read ", what, ": ", text,
                                         "; the file is damaged, truncated or not a Parquet file"));
        }

        std::shared_ptr<detail::ArrowInput> input;
        std::unique_ptr<parquet::arrow::FileReader> reader;
    };

    /// The rows of a row group, several at a time.
    class Pages final : public Cursor {
    public:
        Pages(const ParquetSource& source, std::int64_t block, std::int64_t first_row)
            : name_(source.name_of(block)), columns_(source.columns_),
              group_(source.groups_[static_cast<std::size_t>(block)]),
              file_(source.files_[group_.file]),
              opened_(file_.input, file_.metadata, rows_at_a_time(group_.block)) {
            require_unchanged(file_.input);
            opened_.require(name_, [&] {
                return opened_.reader->GetRecordBatchReader({group_.number}, file_.leaves)
                    .Value(&reader_);
            });
            for (const int leaf : file_.leaves) { // also its dictionary, or the page as stored
                page_bytes_ +=
                    2 * std::min(usual_page_bytes, file_.metadata->RowGroup(group_.number)
                                                       ->ColumnChunk(leaf)
                                                       ->total_uncompressed_size());
            }
            while (begin_ + batch_.size() < first_row) {
                read_on();
            }
            at_ = first_row - begin_;
        }

        [[nodiscard]] Batch next(std::int64_t rows) override {
            while (at_ == batch_.size() && begin_ + at_ < group_.block.rows) {
                read_on();
                at_ = 0;
            }
            const std::int64_t begin = at_;
            at_ += std::min(rows, batch_.size() - begin);
            if (begin == 0 && at_ == batch_.size()) {
                Batch all = std::exchange(batch_, {});
                begin_ += std::exchange(at_, 0);
                return all;
            }
            return slice_rows(batch_, begin, at_);
        }

        [[nodiscard]] std::int64_t bytes() const override { return bytes_of(batch_) + page_bytes_; }

    private:
        [[nodiscard]] static std::int64_t rows_at_a_time(const Block& block) {
            constexpr double bytes = 1 << 20U;
            const double rows = bytes * static_cast<double>(block.rows) /
                                static_cast<double>(std::max<std::int64_t>(block.bytes, 1));
            // Arrow allocates for a power of two, and would copy fewer rows into smaller memory.
            return static_cast<std::int64_t>(
                std::bit_floor(static_cast<std::uint64_t>(std::clamp(rows, 1.0, 65536.0))));
        }

        void read_on() {
            std::shared_ptr<arrow::RecordBatch> rows;
            opened_.require(name_, [&] { return reader_->ReadNext(&rows); });
            begin_ += batch_.size();
            if (!rows) {
                throw DataError("RT-D40", detail::concat(name_, " end after ", begin_,
                                                         " rows; the file is damaged"));
            }
            std::shared_ptr<arrow::Table> table;
            opened_.require(name_,
                            [&] { return arrow::Table::FromRecordBatches({rows}).Value(&table); });
            batch_ =
                detail::batch_of(*table, columns_, file_.input.uri(), group_.first_row + begin_);
        }

        std::string name_;
        std::vector<std::string> columns_;
        Group group_;
        File file_;
        Opened opened_;
        std::shared_ptr<arrow::RecordBatchReader> reader_; ///< of opened_
        Batch batch_;                                      ///< the rows read last
        std::int64_t begin_ = 0;                           ///< of these, in the block
        std::int64_t at_ = 0;                              ///< in these
        std::int64_t page_bytes_ = 0;                      ///< of each column, approximately
    };

    void add(const storage::RandomAccessFile& input) {
        const Opened opened(input);
        opened.require(input.uri(), [&] {
            std::shared_ptr<arrow::Schema> schema;
            ARROW_RETURN_NOT_OK(opened.reader->GetSchema(&schema));
            File file{input, opened.reader->parquet_reader()->metadata(), {}};
            file.content = checkpoint::crc32c(file.metadata->SerializeToString() +
                                              input.read_at(0, head_bytes));
            choose_columns(*schema, opened.reader->manifest(), file);
            list_groups(file);
            files_.push_back(std::move(file));
            return arrow::Status::OK();
        });
    }

    void choose_columns(const arrow::Schema& schema, const parquet::arrow::SchemaManifest& manifest,
                        File& file) {
        const std::string name = file.input.uri();
        if (reads_all_ && files_.empty()) {
            columns_ = schema.field_names();
        }
        const auto fields = detail::choose_fields(schema, columns_, reads_all_, name);
        for (const int number : fields) {
            const auto* field = &manifest.schema_fields[static_cast<std::size_t>(number)];
            forms_.require_same(*field->field, name);
            while (!field->is_leaf()) {
                field = &field->children.front();
            }
            file.leaves.push_back(field->column_index);
        }
    }

    void list_groups(const File& file) {
        std::int64_t rows = 0;
        for (int number = 0; number < file.metadata->num_row_groups(); ++number) {
            const auto group = file.metadata->RowGroup(number);
            Block block{.rows = group->num_rows(), .content = file.content};
            for (const int leaf : file.leaves) {
                block.bytes +=
                    bytes_in_memory(*group->ColumnChunk(leaf), *group->schema()->Column(leaf));
            }
            if (block.rows > 0) {
                groups_.push_back({files_.size(), number, rows, block});
            }
            rows += block.rows;
        }
    }

    /// Approximate bytes in memory: repeated values are stored in the file as indices into a
    /// dictionary.
    template <class Chunk>
    [[nodiscard]] static std::int64_t bytes_in_memory(const Chunk& chunk,
                                                      const parquet::ColumnDescriptor& column) {
        std::int64_t bytes = 0;
        switch (column.physical_type()) {
        case parquet::Type::BOOLEAN:
            bytes = chunk.num_values();
            break;
        case parquet::Type::INT32:
        case parquet::Type::FLOAT:
            bytes = 4 * chunk.num_values();
            break;
        case parquet::Type::FIXED_LEN_BYTE_ARRAY:
            bytes = column.type_length() * chunk.num_values();
            break;
        default:
            bytes = 8 * chunk.num_values();
        }
        if constexpr (requires { chunk.size_statistics(); }) { // since Arrow 19
            if (const auto statistics = chunk.size_statistics()) {
                bytes += statistics->unencoded_byte_array_data_bytes.value_or(0);
            }
        }
        return std::max(bytes, chunk.total_uncompressed_size());
    }

    static constexpr std::int64_t usual_page_bytes = std::int64_t{1} << 20U;

    bool reads_all_;
    std::vector<std::string> columns_;
    detail::SameForms forms_;
    std::vector<File> files_;
    std::vector<Group> groups_;
};

/// The rows of Parquet files: a file, those below a directory that end in .parquet, a glob, or a
/// list of these. They may be on a storage service (files.hpp). Row groups are read as a whole, so
/// they should be small compared to the memory of a rank. Files are opened by the processes that
/// read them, not by one that only launches others.
///
/// Directories named year=2024 become a column of the files in them (partitions.hpp). docs/data.md
/// lists the conversions of Parquet's types. On the first read, throws DataError [RT-D25] to
/// [RT-D29], [RT-D40] to [RT-D44], and StorageError.
///
/// @code
/// .datasets = {{"train", rtrain::data::read_parquet("s3://bucket/train", {.columns = {"x",
/// "y"}})}}
/// @endcode
[[nodiscard]] inline Dataset read_parquet(Paths paths, ParquetOptions options = {}) {
    return lazy([paths = std::move(paths), options = std::move(options)] {
        const auto files = list_files(paths, options.files);
        return from_partitioned(paths, options.files, files, options.columns,
                                [&](std::vector<std::string> columns) {
                                    ParquetOptions chosen = options;
                                    chosen.columns = std::move(columns);
                                    return std::make_shared<const ParquetSource>(files, chosen);
                                });
    });
}

} // namespace rtrain::data
