// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files whose rows are lines: splits bytes into rows, and indexes files. Lines end in "\n" or
/// "\r\n", the last one also at the end of the file. A byte order mark at the file's beginning is
/// not part of a row. Includes no libtorch.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/format/unpack.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

struct LineOptions {
    bool drop_blank = false;                            ///< skip lines of only spaces and tabs
    std::size_t block_bytes = std::size_t{1} << 18U;    ///< of each block except the last, at least
    std::size_t max_line_bytes = std::size_t{1} << 26U; ///< of the longest line; 64 MiB

    /// Equal for options that give equal blocks.
    [[nodiscard]] std::string kind() const {
        return detail::concat("lines ", drop_blank, ' ', block_bytes, ' ', max_line_bytes);
    }
};

/// Takes the next line from `text`, without its end; `text` is not empty.
[[nodiscard]] inline std::string_view take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) {
        line.remove_suffix(1);
    }
    return line;
}

[[nodiscard]] inline bool is_blank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// Calls `visit(row)` for each row in whole lines.
template <class Visit>
void for_each_line(std::string_view lines, const LineOptions& options, Visit&& visit) {
    while (!lines.empty()) {
        const std::string_view line = take_line(lines);
        if (!options.drop_blank || !is_blank(line)) {
            visit(line);
        }
    }
}

/// Throws DataError [RT-D31] if a file begins like a compressed one.
inline void refuse_packed(std::string_view begin, const std::string& name) {
    if (const auto packing = format::packing_of(begin); packing != format::Packing::none) {
        throw DataError(
            "RT-D31",
            detail::concat(name, " is compressed by ", format::name_of(packing),
                           ", so that ranks cannot start reading in the middle; unpack it first. "
                           "Text files whose names end in .gz or .zst are unpacked automatically"));
    }
}

/// Finds the blocks of a file from its bytes, in pieces of any size.
class LineIndexer {
public:
    explicit LineIndexer(std::string name, LineOptions options)
        : name_(std::move(name)), options_(options) {}

    /// Throws DataError: RT-D30 a line is longer than max_line_bytes, RT-D31 the file is packed.
    void add(std::string_view piece) {
        if (offset_ == 0 && kept_.empty()) {
            refuse_packed(piece, name_);
        }
        kept_ += piece;
        const std::size_t end = kept_.rfind('\n') + 1; // 0 if there is none
        take_lines(std::string_view(kept_).substr(0, end));
        kept_.erase(0, end);
        constexpr std::size_t beside = 4; // a byte order mark, "\r"
        if (kept_.size() > options_.max_line_bytes + beside) {
            throw too_long();
        }
    }

    /// The blocks, after all pieces were added.
    [[nodiscard]] std::vector<FileBlock> finish() {
        take_lines(kept_);
        close_block();
        return std::move(blocks_);
    }

private:
    void take_lines(std::string_view lines) {
        if (offset_ == 0 && !lines.empty() && lines.starts_with("\xEF\xBB\xBF")) {
            lines.remove_prefix(3);
            offset_ = begin_ = 3;
        }
        while (!lines.empty()) {
            const std::size_t before = lines.size();
            const std::string_view line = take_line(lines);
            if (line.size() > options_.max_line_bytes) {
                throw too_long();
            }
            lines_ += 1;
            offset_ += before - lines.size();
            rows_ += options_.drop_blank && is_blank(line) ? 0 : 1;
            if (offset_ - begin_ >= options_.block_bytes) {
                close_block();
            }
        }
    }

    void close_block() {
        if (rows_ > 0) {
            blocks_.push_back({.offset = begin_, .bytes = offset_ - begin_, .rows = rows_});
        }
        begin_ = offset_;
        rows_ = 0;
    }

    [[nodiscard]] DataError too_long() const {
        return {"RT-D30",
                detail::concat(name_, ": line ", lines_ + 1, ", at byte ", offset_,
                               ", is longer than max_line_bytes = ", options_.max_line_bytes,
                               "; check that it is a file of lines, or allow longer ones")};
    }

    std::string name_;
    LineOptions options_;
    std::string kept_;         ///< the beginning of a line
    std::uint64_t begin_ = 0;  ///< of the block
    std::uint64_t offset_ = 0; ///< after the lines that were taken
    std::int64_t rows_ = 0;    ///< of the block
    std::int64_t lines_ = 0;
    std::vector<FileBlock> blocks_;
};

/// Reads a file once, a few MiB at a time. Throws DataError as LineIndexer, and RT-D29.
[[nodiscard]] inline FileIndex index_lines(const storage::RandomAccessFile& file,
                                           const LineOptions& options) {
    constexpr std::size_t piece = std::size_t{4} << 20U;
    LineIndexer indexer(file.uri(), options);
    checkpoint::Crc32c content;
    for (std::uint64_t at = 0; at < file.size();) {
        const auto bytes =
            static_cast<std::size_t>(std::min<std::uint64_t>(piece, file.size() - at));
        const std::string text = read_exactly(file, at, bytes);
        content.add(text);
        indexer.add(text);
        at += bytes;
    }
    return {.size = file.size(),
            .modified_ns = file.modified_ns(),
            .blocks = indexer.finish(),
            .content = content.sum()};
}

} // namespace rtrain::data
