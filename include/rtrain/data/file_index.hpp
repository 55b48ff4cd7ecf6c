// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the rows of a file are: blocks that can be read by themselves. An index is found by
/// reading a file once, and is a value with bytes of its own: index_cache.hpp keeps and shares
/// them. Includes no libtorch.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/storage/random_access_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Of rows at a file's beginning: see FileIndex::content.
inline constexpr std::size_t head_bytes = std::size_t{1} << 16U;

/// The FileIndex::sample of an index that holds for any bytes of the file's size.
inline constexpr std::uint32_t any_sample = 1;

/// Whole rows that follow each other in a file.
struct FileBlock {
    std::uint64_t offset = 0; ///< in the file
    std::uint64_t bytes = 0;
    std::int64_t rows = 0;
    friend bool operator==(const FileBlock&, const FileBlock&) = default;
};

/// The blocks of one file, in order. They do not overlap, and each has a row at least.
struct FileIndex {
    std::uint64_t size = 0;       ///< of the file
    std::int64_t modified_ns = 0; ///< as storage::Entry's
    std::vector<FileBlock> blocks;
    /// CRC-32C of what indexing reads, which a copy of the file shares: all of lines and CSV. Of
    /// formats that say themselves where rows are, that and what head_bytes of rows are: a checksum
    /// of all would cost as much as an epoch.
    std::uint32_t content = 0;
    std::uint32_t sample = 0; ///< sample_of() the file, or any_sample
    friend bool operator==(const FileIndex&, const FileIndex&) = default;
};

namespace index {

inline constexpr std::string_view magic = "RTRAINI3";

inline void append(std::string& bytes, std::uint64_t number) {
    for (int i = 0; i < 8; ++i) {
        bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
    }
}

[[nodiscard]] inline std::uint64_t number_at(std::string_view bytes, std::size_t place) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        number |= std::uint64_t{static_cast<unsigned char>(bytes[place + i])} << (8 * i);
    }
    return number;
}

} // namespace index

/// An index as bytes, for other ranks and files: numbers of 8 bytes, least first, behind a magic
/// one; 24 bytes a block.
[[nodiscard]] inline std::string to_bytes(const FileIndex& file) {
    std::string bytes(index::magic);
    index::append(bytes, file.size);
    index::append(bytes, static_cast<std::uint64_t>(file.modified_ns));
    index::append(bytes, std::uint64_t{file.sample} << 32U | file.content);
    for (const FileBlock& block : file.blocks) {
        index::append(bytes, block.offset);
        index::append(bytes, block.bytes);
        index::append(bytes, static_cast<std::uint64_t>(block.rows));
    }
    return bytes;
}

/// Takes back what to_bytes() made. Throws DataError [RT-D28].
[[nodiscard]] inline FileIndex parse_index(std::string_view bytes) {
    constexpr std::size_t head = index::magic.size() + 24;
    constexpr std::size_t of_block = 24;
    const auto damaged = [](std::string_view why) {
        return DataError("RT-D28", detail::concat("these bytes are no index of a data file: ", why,
                                                  "; make it again"));
    };
    if (bytes.size() < head || !bytes.starts_with(index::magic) ||
        (bytes.size() - head) % of_block != 0) {
        throw damaged("they have another form");
    }
    FileIndex file{.size = index::number_at(bytes, 8),
                   .modified_ns = static_cast<std::int64_t>(index::number_at(bytes, 16)),
                   .blocks = {},
                   .content = static_cast<std::uint32_t>(index::number_at(bytes, 24)),
                   .sample = static_cast<std::uint32_t>(index::number_at(bytes, 24) >> 32U)};
    std::uint64_t end = 0;
    for (std::size_t at = head; at < bytes.size(); at += of_block) {
        const FileBlock block{.offset = index::number_at(bytes, at),
                              .bytes = index::number_at(bytes, at + 8),
                              .rows = static_cast<std::int64_t>(index::number_at(bytes, at + 16))};
        if (block.offset < end || block.offset > file.size ||
            block.bytes > file.size - block.offset || block.rows < 1) {
            throw damaged("a block is not in the file, or overlaps another");
        }
        end = block.offset + block.bytes;
        file.blocks.push_back(block);
    }
    return file;
}

/// What a reader throws that finds another file than was indexed.
[[nodiscard]] inline DataError changed_file(const storage::RandomAccessFile& file,
                                            std::string_view what) {
    return {"RT-D29", detail::concat(file.uri(), " has changed since it was indexed: ", what,
                                     "; start again, and let nobody write to files that are read")};
}

/// All of a part of a file. Throws DataError [RT-D29] when the file has become shorter or, on this
/// machine, was modified.
[[nodiscard]] inline std::string read_exactly(const storage::RandomAccessFile& file,
                                              std::uint64_t offset, std::size_t bytes) {
    std::string read = file.read_at(offset, bytes);
    if (read.size() != bytes) {
        throw changed_file(file, detail::concat("it ends at byte ", offset + read.size()));
    }
    return read;
}

/// CRC-32C of a file's first and last bytes and of some between, by which an index is known to be
/// of another file that has the same size and time: what `cp -p` and archives leave behind. 0 on a
/// service, where each write has a new time.
[[nodiscard]] inline std::uint32_t sample_of(const storage::RandomAccessFile& file) {
    constexpr std::uint64_t ends = 4096;
    constexpr std::uint64_t between = 256;
    constexpr std::uint64_t pieces = 16;
    if (!file.filesystem().is_local()) {
        return 0;
    }
    checkpoint::Crc32c sum;
    if (file.size() <= 2 * ends) {
        sum.add(file.read_at(0, 2 * ends));
    } else {
        const std::uint64_t last = file.size() - ends;
        sum.add(file.read_at(0, ends));
        for (std::uint64_t i = 1; i < pieces; ++i) {
            sum.add(file.read_at(last / pieces * i, between));
        }
        sum.add(file.read_at(last, ends));
    }
    return std::max(sum.sum(), any_sample + 1);
}

/// Throws DataError [RT-D29] when a file of this machine was modified since it was listed.
inline void require_unchanged(const storage::RandomAccessFile& file) {
    if (!file.filesystem().is_local()) {
        return; // the service would have to be asked each time
    }
    const auto now = file.filesystem().look_at(file.path());
    if (!now) {
        throw changed_file(file, "it is gone");
    }
    if (now->size != file.size() || now->modified_ns != file.modified_ns()) {
        throw changed_file(
            file, now->size != file.size()
                      ? detail::concat("it had ", file.size(), " bytes, and has ", now->size)
                      : "it was written to");
    }
}

} // namespace rtrain::data
