// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text files: one row per line, or one row per file.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/lines.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::data {

/// Options of read_text().
struct TextOptions {
    std::string column = "text"; ///< name of the column
    bool whole_files = false;    ///< one row per file, including line ends; drop_blank is ignored
    bool drop_blank = false;     ///< skip lines of only spaces and tabs
    std::size_t max_line_bytes = std::size_t{1} << 26U; ///< a longer line or file is an error
    std::size_t block_bytes = std::size_t{1} << 18U;    ///< read at a time
    FileOptions files = {};                             ///< which files to read
};

/// Text, as ragged columns of bytes. Bytes are not validated; base/text/utf8.hpp can check them.
/// Lines end in "\n" or "\r\n", which is not part of a row; nor is a byte order mark at a file's
/// beginning. Files are listed when the data set is first read. Throws DataError then: as
/// list_files(), RT-D29 a file has changed, RT-D30 a line is too long, RT-D31 a file is compressed.
///
/// @code
/// auto lines = rtrain::data::read_text("s3://bucket/books/*.txt", {.drop_blank = true});
/// @endcode
[[nodiscard]] inline Dataset read_text(Paths paths, TextOptions options = {}) {
    class Text : public FileFormat {
    public:
        explicit Text(TextOptions options)
            : options_(std::move(options)), lines_{.drop_blank = options_.drop_blank,
                                                   .block_bytes = options_.block_bytes,
                                                   .max_line_bytes = options_.max_line_bytes} {}

        [[nodiscard]] std::string kind() const override {
            return options_.whole_files ? "a row " + std::to_string(options_.max_line_bytes)
                                        : lines_.kind();
        }

        [[nodiscard]] FileIndex index(const storage::RandomAccessFile& file) const override {
            if (!options_.whole_files) {
                return index_lines(file, lines_);
            }
            if (file.size() > options_.max_line_bytes) {
                throw DataError("RT-D30",
                                detail::concat(file.uri(), " has ", file.size(),
                                               " bytes; expected at most max_line_bytes = ",
                                               options_.max_line_bytes,
                                               " for a row; allow longer ones"));
            }
            return {.size = file.size(),
                    .modified_ns = file.modified_ns(),
                    .blocks = {{.offset = 0, .bytes = file.size(), .rows = 1}},
                    .sample = any_sample};
        }

        [[nodiscard]] Batch read(const FileRows& rows) const override {
            const std::string bytes = rows.bytes();
            TextBuilder text;
            if (options_.whole_files) {
                text.add(bytes);
            } else {
                for_each_line(bytes, lines_, [&](std::string_view line) { text.add(line); });
            }
            return {{}, {{options_.column, text.finish()}}};
        }

    private:
        TextOptions options_;
        LineOptions lines_;
    };
    FileOptions files = options.files;
    files.unpacks = true;
    return read_files(std::move(paths), files, {},
                      [options = std::move(options)](const auto&, const auto&) {
                          return std::make_shared<const Text>(options);
                      });
}

} // namespace rtrain::data
