// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuts a CSV file into blocks of whole rows, in one pass through its bytes. A row ends as in
/// Arrow's reader: at "\n", "\r\n" or "\r" outside of quotes, and quotes count only at the start of
/// a field. Empty lines and comment lines are not rows. Includes no libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/file_index.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

class CsvBlocks {
public:
    struct Format {
        char delimiter = ',';
        char quote = '"'; ///< 0: none
        bool has_header = true;
        std::uint64_t block_bytes = 1U << 18U; ///< a block ends with the row that reaches this size
        std::uint64_t max_row_bytes = 1U << 26U; ///< longer rows are errors
        char comment = 0;                        ///< lines that begin with it are not rows; 0: none
        std::int64_t skip_rows = 0;              ///< lines to skip at the start

        /// Equal for formats that give equal blocks.
        [[nodiscard]] std::string kind() const {
            return concat("csv ", static_cast<int>(delimiter), ' ', static_cast<int>(quote), ' ',
                          has_header, ' ', block_bytes, ' ', max_row_bytes, ' ',
                          static_cast<int>(comment), ' ', skip_rows);
        }
    };

    /// `begin`: the offset of the first row, after a byte order mark. `file` is for messages.
    CsvBlocks(const Format& format, std::string file, std::uint64_t begin)
        : format_(format), file_(std::move(file)), position_(begin), row_begin_(begin),
          awaits_header_(format.has_header), left_to_skip_(format.skip_rows) {
        block_.offset = begin;
        for (const char c : {'\n', '\r', '\0', format_.quote}) {
            is_special_[static_cast<unsigned char>(c)] = true;
        }
    }

    /// Feeds the next bytes. Throws DataError [RT-D47], [RT-D48].
    void feed(std::string_view text) {
        for (std::size_t at = 0; at < text.size();) {
            const char c = text[at];
            if (ends_with_cr_) {
                ends_with_cr_ = false;
                const std::size_t newline = c == '\n' ? 1 : 0;
                at += newline;
                end_row(here(at), newline + 1);
            } else if (may_close_) { // a quote within quotes: doubled, it is part of the value
                may_close_ = false;
                is_quoted_ = c == format_.quote;
                at += is_quoted_ ? 1U : 0U;
            } else if (is_quoted_) {
                const auto end = quoted_end(text, at);
                may_close_ = end < text.size() && text[end] == format_.quote;
                at = end + (may_close_ ? 1U : 0U);
            } else if (left_to_skip_ > 0 || begins_comment(c, at)) {
                is_passed_over_ = true;
                at = feed_passed_over(text, at);
            } else {
                at = feed_unquoted(text, at);
            }
            if (at > 0) {
                previous_ = text[at - 1];
            }
        }
        position_ += text.size();
        require_short(position_);
    }

    /// The blocks, after the whole file was fed. Throws DataError [RT-D46].
    [[nodiscard]] std::vector<data::FileBlock> finish() {
        if (is_quoted_ && !may_close_) {
            throw DataError("RT-D46",
                            concat("a quote that is open at the end of ", file_, " begins in ",
                                   row_name(), ", at byte ", quote_begin_,
                                   "; close it, or set .quote to the quote character of the file"));
        }
        if (row_begin_ < position_) {
            end_row(position_, ends_with_cr_ ? 1 : 0);
        }
        end_block(row_begin_);
        return std::move(blocks_);
    }

private:
    [[nodiscard]] std::uint64_t here(std::size_t at) const { return position_ + at; }

    [[nodiscard]] std::string row_name() const {
        return awaits_header_ ? "the header" : concat("row ", rows_before_ + block_.rows);
    }

    /// The next quote or NUL, or the end of `text`.
    [[nodiscard]] std::size_t quoted_end(std::string_view text, std::size_t at) {
        const auto end = std::min(text.find(format_.quote, at), text.size());
        if (const auto nul = text.substr(at, end - at).find('\0'); nul != std::string_view::npos) {
            throw_nul(here(at + nul));
        }
        return end;
    }

    [[nodiscard]] bool begins_comment(char c, std::size_t at) const {
        return is_passed_over_ ||
               (format_.comment != 0 && c == format_.comment && here(at) == row_begin_);
    }

    /// Skips to the end of a line that is not a row. Returns the offset reached.
    [[nodiscard]] std::size_t feed_passed_over(std::string_view text, std::size_t at) {
        const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
        if (end == text.size()) {
            return end;
        }
        if (text[end] == '\n') {
            end_row(here(end + 1), 1);
        } else {
            ends_with_cr_ = true;
        }
        return end + 1;
    }

    /// Returns the offset reached.
    [[nodiscard]] std::size_t feed_unquoted(std::string_view text, std::size_t at) {
        const std::size_t begin = at;
        while (at < text.size() && !is_special_[static_cast<unsigned char>(text[at])]) {
            ++at;
        }
        if (at == text.size()) {
            return at;
        }
        const char before = at > begin ? text[at - 1] : previous_;
        switch (text[at]) {
        case '\n':
            end_row(here(at + 1), 1);
            break;
        case '\r':
            ends_with_cr_ = true;
            break;
        case '\0':
            throw_nul(here(at));
        default:
            if (here(at) == row_begin_ || before == format_.delimiter) {
                is_quoted_ = true;
                quote_begin_ = here(at);
            }
        }
        return at + 1;
    }

    /// `end`: after the row's `newline` bytes of "\n" or equivalent.
    void end_row(std::uint64_t end, std::size_t newline) {
        require_short(end);
        const bool is_passed_over = std::exchange(is_passed_over_, false);
        const bool is_empty = end - row_begin_ == newline || is_passed_over;
        left_to_skip_ -= left_to_skip_ > 0 ? 1 : 0;
        row_begin_ = end;
        if (awaits_header_) {
            awaits_header_ = is_empty;
            block_.offset = end;
            return;
        }
        if (is_passed_over && block_.rows == 0) {
            block_.offset = end;
        }
        block_.rows += is_empty ? 0 : 1;
        if (end - block_.offset >= format_.block_bytes) {
            end_block(end);
        }
    }

    void end_block(std::uint64_t end) {
        block_.bytes = end - block_.offset;
        rows_before_ += block_.rows;
        if (block_.rows > 0) {
            blocks_.push_back(block_);
        }
        block_ = {.offset = end};
    }

    void require_short(std::uint64_t end) const {
        if (end - row_begin_ > format_.max_row_bytes) {
            throw DataError("RT-D47",
                            concat(row_name(), " of ", file_, ", from byte ", row_begin_,
                                   " on, is longer than .max_row_bytes = ", format_.max_row_bytes,
                                   is_quoted_ ? concat("; the quote at byte ", quote_begin_,
                                                       " may not be closed")
                                              : "; check that the file holds rows of text"));
        }
    }

    [[noreturn]] void throw_nul(std::uint64_t at) const {
        throw DataError("RT-D48",
                        concat(row_name(), " of ", file_, " has a NUL at byte ", at,
                               "; expected UTF-8 text; convert UTF-16, or check for damage"));
    }

    Format format_;
    std::string file_;
    std::array<bool, 256> is_special_{};
    std::uint64_t position_;
    std::uint64_t row_begin_;
    std::uint64_t quote_begin_ = 0;
    char previous_ = '\0';
    bool awaits_header_;
    std::int64_t left_to_skip_;
    bool is_passed_over_ = false; ///< the line is not a row
    bool is_quoted_ = false;
    bool may_close_ = false;
    bool ends_with_cr_ = false;
    data::FileBlock block_;
    std::int64_t rows_before_ = 0; ///< before the block
    std::vector<data::FileBlock> blocks_;
};

} // namespace rtrain::detail
