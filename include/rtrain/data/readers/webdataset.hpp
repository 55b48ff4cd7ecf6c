// SPDX-License-Identifier: Apache-2.0
/// @file
/// WebDataset: samples in tar archives.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/data/readers/json_columns.hpp>
#include <rtrain/data/readers/webdataset_fields.hpp>
#include <rtrain/format/json_row.hpp>
#include <rtrain/format/webdataset.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The samples of tar archives.
class WebdatasetFiles : public FileFormat {
public:
    /// Finds the columns in the first of `files`. Throws DataError as read_webdataset().
    WebdatasetFiles(WebdatasetOptions options, const storage::RandomAccessFile& first)
        : options_(std::move(options)), bad_(options_.on_error, options_.max_errors) {
        const auto index = index_file(first, kind(), [&] { return this->index(first); });
        if (index->blocks.empty()) {
            throw DataError("RT-D36",
                            first.uri() +
                                " holds no sample: expected files such as 0001.jpg and 0001.cls");
        }
        find_fields({.file = first, .block = index->blocks.front(), .first_row = 0});
    }

    [[nodiscard]] std::string kind() const override {
        return "webdataset " + std::to_string(options_.block_bytes);
    }

    [[nodiscard]] FileIndex index(const storage::RandomAccessFile& file) const override {
        constexpr std::size_t ahead = std::size_t{1} << 20U; // most of what follows will be read
        FileIndex index{.size = file.size(), .modified_ns = file.modified_ns(), .blocks = {}};
        checkpoint::Crc32c content;
        std::string window;
        std::uint64_t begin = 0; // of the window
        const auto read = [&](std::uint64_t offset, std::size_t length) {
            if (offset < begin || offset + length > begin + window.size()) {
                begin = offset;
                window = file.read_at(offset, std::max(length, ahead));
                content.add(window);
            }
            return std::string_view(window).substr(offset - begin, length);
        };
        try {
            format::SampleReader samples{format::TarReader(file.size(), read)};
            while (const auto sample = samples.next()) {
                if (index.blocks.empty() || index.blocks.back().bytes >= options_.block_bytes) {
                    index.blocks.push_back({.offset = sample->begin, .bytes = 0, .rows = 0});
                }
                FileBlock& block = index.blocks.back();
                block.bytes = sample->end - block.offset;
                block.rows += 1;
            }
        } catch (const format::TarError& error) {
            refuse_packed(file.read_at(0, 4), file.uri());
            throw DataError("RT-D35", detail::concat(file.uri(), " is not an intact tar archive: ",
                                                     error.what(), "; write or copy it again"));
        }
        index.content = content.sum();
        return index;
    }

    [[nodiscard]] Batch read(const FileRows& rows) const override {
        TextBuilder keys;
        std::vector<Column> columns;
        for (const Field& field : fields_) {
            columns.emplace_back(field);
        }
        ReplacementRows stand_ins;
        std::int64_t row = 0;
        for_each_sample(rows, [&](const format::TarSample& sample, std::string_view block) {
            try {
                add(columns, sample, block, rows.block.offset);
                keys.add(sample.key);
                stand_ins.add(true);
            } catch (const std::invalid_argument& error) {
                bad_.add(DataError("RT-D36", detail::concat(rows.name_of(row), ", sample \"",
                                                            sample.key, "\": ", error.what())),
                         rows.file.uri(), rows.first_row + row);
                stand_ins.add(false);
            }
            ++row;
        });
        stand_ins.require_good(rows.name_of(0), "sample");
        return with_stand_ins(finish(columns, keys), stand_ins);
    }

private:
    using Field = webdataset::Field;
    using Kind = webdataset::Kind;

    /// The values of a field.
    struct Column {
        explicit Column(const Field& of)
            : field(&of),
              parser(of.kind == Kind::json ? std::make_unique<format::JsonRowParser>() : nullptr),
              json(of.json, false) {}
        const Field* field;
        TextBuilder bytes;
        std::vector<std::int64_t> integers;
        std::vector<double> reals;
        std::unique_ptr<format::JsonRowParser> parser;
        JsonBatch json;
    };

    /// The first sample determines the fields, unless the options do; samples of the first block
    /// determine the columns within JSON.
    void find_fields(const FileRows& rows) {
        fields_ = webdataset::chosen_fields(options_);
        std::vector<JsonSchema> schemas;
        format::JsonRowParser parser;
        std::int64_t row = 0;
        for_each_sample(rows, [&](const format::TarSample& sample, std::string_view block) {
            if (fields_.empty()) {
                for (const auto& file : sample.files) {
                    fields_.push_back(webdataset::field_of(options_, file.field));
                }
            }
            while (schemas.size() < fields_.size()) {
                const Field& field = fields_[schemas.size()];
                schemas.emplace_back(field.keys, webdataset::types_in(options_, field.name));
            }
            for (std::size_t i = 0; i < fields_.size(); ++i) {
                const auto* const file = find(sample, fields_[i].name);
                if (file == nullptr || fields_[i].kind != Kind::json) {
                    continue;
                }
                try {
                    schemas[i].add(parser.parse(bytes_of(*file, block, rows.block.offset)));
                } catch (const std::invalid_argument& error) {
                    bad_.add(DataError("RT-D36", detail::concat(
                                                     rows.name_of(row), ", sample \"", sample.key,
                                                     "\": .", fields_[i].name, ": ", error.what())),
                             rows.file.uri(), rows.first_row + row);
                }
            }
            ++row;
        });
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            fields_[i].json = schemas[i].finish();
            for (const std::string& key : fields_[i].keys) {
                if (std::ranges::find(fields_[i].json, key, &JsonColumn::name) ==
                    fields_[i].json.end()) {
                    throw DataError(
                        "RT-D36", detail::concat(
                                      rows.file.uri(), ": no column \"", fields_[i].name, '.', key,
                                      "\" is in the first ", row,
                                      " samples; if it appears later, give it a type with .types"));
                }
            }
        }
    }

    /// Calls `visit(sample, bytes of the block)`.
    template <class Visit>
    static void for_each_sample(const FileRows& rows, Visit&& visit) {
        const std::string block = rows.bytes();
        const std::uint64_t begin = rows.block.offset;
        const auto read = [&](std::uint64_t offset, std::size_t length) {
            return std::string_view(block).substr(offset - begin, length);
        };
        try {
            format::SampleReader samples{format::TarReader(
                begin + block.size(), read, format::TarReader::End::anywhere, begin)};
            while (const auto sample = samples.next()) {
                visit(*sample, std::string_view(block));
            }
        } catch (const format::TarError& error) {
            throw changed_file(rows.file, error.what());
        }
    }

    [[nodiscard]] static const format::SampleFile* find(const format::TarSample& sample,
                                                        const std::string& field) {
        const auto found = std::ranges::find(sample.files, field, &format::SampleFile::field);
        return found == sample.files.end() ? nullptr : &*found;
    }

    [[nodiscard]] static std::string_view bytes_of(const format::SampleFile& file,
                                                   std::string_view block, std::uint64_t begin) {
        return block.substr(static_cast<std::size_t>(file.data - begin),
                            static_cast<std::size_t>(file.size));
    }

    template <class Number>
    [[nodiscard]] static Number number_in(std::string_view text) {
        const auto first = text.find_first_not_of(" \t\r\n");
        text.remove_prefix(std::min(first, text.size()));
        text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
        Number number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc() || end != text.data() + text.size()) {
            throw std::invalid_argument(
                std::is_integral_v<Number>
                    ? "does not hold an integer; give it a different type with .types"
                    : "does not hold a number");
        }
        return number;
    }

    /// Adds a whole sample, or nothing.
    void add(std::vector<Column>& columns, const format::TarSample& sample, std::string_view block,
             std::uint64_t begin) const {
        std::vector<std::string_view> values;
        std::vector<std::int64_t> integers(columns.size());
        std::vector<double> reals(columns.size());
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const auto* const file = find(sample, fields_[i].name);
            if (file == nullptr) {
                throw std::invalid_argument(detail::concat(
                    "no .", fields_[i].name, ", which the first sample or .columns has"));
            }
            values.push_back(bytes_of(*file, block, begin));
        }
        // All that may throw is before all that adds; of JSON, only the last step can fail.
        std::vector<std::span<const format::JsonCell>> cells(columns.size());
        for (std::size_t i = 0; i < columns.size(); ++i) {
            try {
                if (fields_[i].kind == Kind::integer) {
                    integers[i] = number_in<std::int64_t>(values[i]);
                } else if (fields_[i].kind == Kind::real) {
                    reals[i] = number_in<double>(values[i]);
                } else if (fields_[i].kind == Kind::json) {
                    cells[i] = columns[i].parser->parse(values[i]);
                    columns[i].json.check(cells[i]);
                }
            } catch (const std::invalid_argument& error) {
                throw std::invalid_argument(
                    detail::concat(".", fields_[i].name, ": ", error.what()));
            }
        }
        for (std::size_t i = 0; i < columns.size(); ++i) {
            if (fields_[i].kind == Kind::integer) {
                columns[i].integers.push_back(integers[i]);
            } else if (fields_[i].kind == Kind::real) {
                columns[i].reals.push_back(reals[i]);
            } else if (fields_[i].kind == Kind::json) {
                columns[i].json.add(cells[i]);
            } else {
                columns[i].bytes.add(values[i]);
            }
        }
    }

    [[nodiscard]] static Batch finish(const std::vector<Column>& columns, const TextBuilder& keys) {
        Batch::Columns plain;
        Batch::RaggedColumns ragged{{"__key__", keys.finish()}};
        Batch::Columns masks;
        for (const Column& column : columns) {
            const std::string& name = column.field->name;
            if (column.field->kind == Kind::integer) {
                plain.emplace_back(name, at::tensor(column.integers, at::kLong));
            } else if (column.field->kind == Kind::real) {
                plain.emplace_back(name, at::tensor(column.reals, at::kDouble));
            } else if (column.field->kind == Kind::bytes) {
                ragged.emplace_back(name, column.bytes.finish());
            } else {
                const Batch json = column.json.finish();
                const auto append = [&](auto& to, const auto& from) {
                    for (const auto& [key, values] : from) {
                        to.emplace_back(name + "." + key, values);
                    }
                };
                append(plain, json.columns());
                append(ragged, json.ragged_columns());
                append(masks, json.masks());
            }
        }
        return {std::move(plain), std::move(ragged), std::move(masks)};
    }

    WebdatasetOptions options_;
    BadRows bad_;
    std::vector<Field> fields_;
};

/// Samples of tar archives as webdataset's TarWriter and GNU tar write them: consecutive files with
/// the same name up to the first dot. Columns: "__key__", that name; for each file the part after
/// the dot, in lower case. "cls", "index", "id" and the like are int64. "json" becomes a column for
/// each key, "json.width", with types as in read_json(). All others, "txt" and "jpg", are ragged
/// bytes. Every sample has the files of the first one, or those that the options name; others are
/// ignored. Archives are listed when the data set is first read. Throws DataError then: as
/// list_files(), RT-D29 a file has changed, RT-D35 an archive is damaged, truncated, or has names
/// that lead out of it, RT-D36 a sample lacks a file or has a value that cannot be read, RT-D34 too
/// many samples are bad.
///
/// @code
/// auto images = rtrain::data::read_webdataset("s3://bucket/shards/*.tar");
/// @endcode
[[nodiscard]] inline Dataset read_webdataset(Paths paths, WebdatasetOptions options = {}) {
    FileOptions files = options.files;
    return read_files_as<WebdatasetFiles>(std::move(paths), std::move(files), std::move(options));
}

} // namespace rtrain::data
