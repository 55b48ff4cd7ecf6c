// SPDX-License-Identifier: Apache-2.0
/// @file
/// The positions of a file's rows: blocks that can be read independently. Indexing reads a file
/// once; index_cache.hpp keeps and shares the indices as bytes. Includes no libtorch.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Bytes of rows at the beginning of a file: see FileIndex::content.
inline constexpr std::size_t head_bytes = std::size_t{1} << 16U;

/// The FileIndex::sample of an index that is valid for any bytes of the file's size.
inline constexpr std::uint32_t any_sample = 1;

/// Consecutive whole rows of a file.
struct FileBlock {
    std::uint64_t offset = 0; ///< in the file
    std::uint64_t bytes = 0;
    std::int64_t rows = 0;
    friend bool operator==(const FileBlock&, const FileBlock&) = default;
};

/// The blocks of one file, in order, without overlap; each has at least one row.
struct FileIndex {
    std::uint64_t size = 0;       ///< of the file
    std::int64_t modified_ns = 0; ///< as in storage::Entry
    std::vector<FileBlock> blocks;
    /// CRC-32C of the bytes that indexing reads, equal for copies of the file: all bytes of lines
    /// and CSV. For formats that store the positions of rows, that and the first head_bytes of
    /// rows: a checksum of all would cost as much as an epoch.
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

/// Serializes an index for other ranks and files: 8-byte little-endian numbers after a magic one;
/// 24 bytes a block.
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

/// The inverse of to_bytes(). Throws DataError [RT-D28].
[[nodiscard]] inline FileIndex parse_index(std::string_view bytes) {
    constexpr std::size_t head = index::magic.size() + 24;
    constexpr std::size_t of_block = 24;
    const auto damaged = [](std::string_view why) {
        return DataError("RT-D28", detail::concat("these bytes are not the index of a data file: ",
                                                  why, "; create it again"));
    };
    if (bytes.size() < head || !bytes.starts_with(index::magic) ||
        (bytes.size() - head) % of_block != 0) {
        throw damaged("their format is not that of an index");
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
            throw damaged("a block is outside of the file, or overlaps another");
        }
        end = block.offset + block.bytes;
        file.blocks.push_back(block);
    }
    return file;
}

/// The error of a reader whose file has changed since it was indexed.
[[nodiscard]] inline DataError changed_file(const storage::RandomAccessFile& file,
                                            std::string_view what) {
    return {"RT-D29",
            detail::concat(file.uri(), " has changed since it was indexed: ", what,
                           "; start again, and do not write to files that are being read")};
}

/// Reads a part of a file completely. Throws DataError [RT-D29] if the file has become shorter or,
/// on this machine, was modified.
[[nodiscard]] inline std::string read_exactly(const storage::RandomAccessFile& file,
                                              std::uint64_t offset, std::size_t bytes) {
    std::string read = file.read_at(offset, bytes);
    if (read.size() != bytes) {
        throw changed_file(file, detail::concat("it ends at byte ", offset + read.size()));
    }
    return read;
}

/// CRC-32C of a file's first and last bytes and of some between. It detects an index of a different
/// file with the same size and time, as left by `cp -p` and archives. On a service, where each
/// write has a new time, it is 0.
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

/// Throws DataError [RT-D29] if a file of this machine was modified since it was listed.
inline void require_unchanged(const storage::RandomAccessFile& file) {
    if (!file.filesystem().is_local()) {
        return; // it would cost a request to the service each time
    }
    const auto now = file.filesystem().look_at(file.path());
    if (!now) {
        throw changed_file(file, "it no longer exists");
    }
    if (now->size != file.size() || now->modified_ns != file.modified_ns()) {
        throw changed_file(
            file, now->size != file.size()
                      ? detail::concat("it had ", file.size(), " bytes, and has ", now->size)
                      : "it was written to");
    }
}

} // namespace rtrain::data
