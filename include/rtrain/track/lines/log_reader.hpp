// SPDX-License-Identifier: Apache-2.0
/// @file
/// LogReader: reads the lines of a growing file. It buffers one part of the file, and closes the
/// file between reads, because the file may be replaced by one with the same beginning. Cost tier
/// 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

class LogReader {
public:
    static constexpr std::uint64_t to_its_end = std::numeric_limits<std::uint64_t>::max();

    /// Starts at byte `from`, the beginning of a line.
    explicit LogReader(std::filesystem::path file, std::uint64_t from = 0)
        : file_(std::move(file)), at_(from) {}

    /// The current line, without its line break, if it ends below byte `limit`. Valid until the
    /// next call. Throws StorageError [RT-S4].
    [[nodiscard]] std::optional<std::string_view> line(std::uint64_t limit = to_its_end) {
        for (;;) {
            const std::size_t end = part_.find('\n', begin_);
            if (end != std::string::npos) {
                return at_ + (end - begin_) < limit
                           ? std::optional(std::string_view(part_).substr(begin_, end - begin_))
                           : std::nullopt;
            }
            if (at_ + (part_.size() - begin_) >= limit || !read_more(limit)) {
                return std::nullopt;
            }
        }
    }

    /// Moves past the line that line() returned.
    void pass() {
        const std::size_t next = part_.find('\n', begin_) + 1;
        at_ += next - begin_;
        begin_ = next;
    }

    /// Closes the file and frees the buffer; keeps the position.
    void rest() {
        input_ = {};
        part_ = {};
        begin_ = 0;
    }

private:
    static constexpr std::size_t part_size = std::size_t{1} << 16;

    bool read_more(std::uint64_t limit) {
        part_.erase(0, std::exchange(begin_, 0));
        const std::uint64_t from = at_ + part_.size();
        if (!input_.is_open()) {
            input_ = storage::open_stream(file_);
            input_.seekg(static_cast<std::streamoff>(from));
        }
        const std::size_t had = part_.size();
        const auto wanted =
            static_cast<std::size_t>(std::min<std::uint64_t>(part_size, limit - from));
        part_.resize(had + wanted);
        input_.clear();
        input_.read(part_.data() + had, static_cast<std::streamsize>(wanted));
        if (!input_.is_open() || input_.bad()) {
            rest();
            throw StorageError("RT-S4", rtrain::detail::concat("cannot read ", file_.string()));
        }
        part_.resize(had + static_cast<std::size_t>(input_.gcount()));
        return part_.size() > had;
    }

    std::filesystem::path file_;
    std::uint64_t at_; ///< beginning of the current line
    std::ifstream input_;
    std::string part_;
    std::size_t begin_ = 0; ///< the current line in `part_`
};

} // namespace rtrain::track
