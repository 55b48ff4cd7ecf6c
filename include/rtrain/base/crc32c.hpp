// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRC-32C (Castagnoli), computed in hardware: detects every change of up to 31 adjacent bits.
/// Parameters: https://reveng.sourceforge.io/crc-catalogue, "CRC-32/ISCSI".
/// Cost tier 0: std only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rtrain::checkpoint {

namespace crc {

/// Table k advances a checksum by k + 1 bytes.
[[nodiscard]] constexpr std::array<std::array<std::uint32_t, 256>, 8> make_tables() {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
        }
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}
inline constexpr auto tables = make_tables();

/// For processors without the instruction: eight bytes per step.
[[nodiscard]] inline std::uint32_t by_tables(std::uint32_t crc, const char* data,
                                             std::size_t bytes) {
    for (; bytes >= 8; bytes -= 8, data += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) {
            crc ^= tables[7 - k][(word >> (8 * k)) & 0xFF];
        }
    }
    for (; bytes > 0; --bytes, ++data) {
        crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<unsigned char>(*data)) & 0xFF];
    }
    return crc;
}

#if defined(__x86_64__)
[[nodiscard]] __attribute__((target("sse4.2"))) inline std::uint32_t
by_instruction(std::uint32_t crc, const char* data, std::size_t bytes) {
    std::uint64_t wide = crc;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = static_cast<std::uint32_t>(wide);
    for (; bytes > 0; --bytes, ++data) {
        crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*data));
    }
    return crc;
}

/// Three blocks in parallel: the instruction has a latency of three cycles and a throughput of one.
__attribute__((target("sse4.2"))) inline void
three_by_instruction(const char* data, std::size_t block, std::uint32_t* sums) {
    std::uint64_t a = ~0U;
    std::uint64_t b = ~0U;
    std::uint64_t c = ~0U;
    for (std::size_t i = 0; i + 8 <= block; i += 8) {
        std::uint64_t words[3];
        std::memcpy(&words[0], data + i, 8);
        std::memcpy(&words[1], data + block + i, 8);
        std::memcpy(&words[2], data + 2 * block + i, 8);
        a = _mm_crc32_u64(a, words[0]);
        b = _mm_crc32_u64(b, words[1]);
        c = _mm_crc32_u64(c, words[2]);
    }
    sums[0] = ~static_cast<std::uint32_t>(a);
    sums[1] = ~static_cast<std::uint32_t>(b);
    sums[2] = ~static_cast<std::uint32_t>(c);
}

inline const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#else
inline constexpr bool has_instruction = false;
#endif

/// Without the inversion at start and end.
[[nodiscard]] inline std::uint32_t raw(std::uint32_t crc, const char* data, std::size_t bytes) {
#if defined(__x86_64__)
    if (has_instruction) {
        return by_instruction(crc, data, bytes);
    }
#endif
    return by_tables(crc, data, bytes);
}

} // namespace crc

[[nodiscard]] inline std::uint32_t crc32c(std::string_view bytes) {
    return ~crc::raw(~0U, bytes.data(), bytes.size());
}

/// Checksum of bytes in pieces.
class Crc32c {
public:
    void add(std::string_view bytes) { open_ = crc::raw(open_, bytes.data(), bytes.size()); }
    [[nodiscard]] std::uint32_t sum() const noexcept { return ~open_; }

private:
    std::uint32_t open_ = ~0U;
};

/// The checksums of each MiB of a byte stream; the last may be shorter.
class ChunkSums {
public:
    static constexpr std::size_t chunk = std::size_t{1} << 20;

    void add(const void* data, std::size_t bytes) {
        const auto* from = static_cast<const char*>(data);
        while (bytes > 0) {
#if defined(__x86_64__)
            if (filled_ == 0 && bytes >= 3 * chunk && crc::has_instruction) {
                sums_.resize(sums_.size() + 3);
                crc::three_by_instruction(from, chunk, &sums_[sums_.size() - 3]);
                from += 3 * chunk;
                bytes -= 3 * chunk;
                continue;
            }
#endif
            const std::size_t part = bytes < chunk - filled_ ? bytes : chunk - filled_;
            open_ = crc::raw(open_, from, part);
            from += part;
            bytes -= part;
            filled_ += part;
            if (filled_ == chunk) {
                close();
            }
        }
    }

    /// Ends the stream.
    [[nodiscard]] std::vector<std::uint32_t> finish() {
        if (filled_ > 0) {
            close();
        }
        return std::move(sums_);
    }

private:
    void close() {
        sums_.push_back(~open_);
        open_ = ~0U;
        filled_ = 0;
    }

    std::vector<std::uint32_t> sums_;
    std::uint32_t open_ = ~0U;
    std::size_t filled_ = 0;
};

/// Returns the checksum of the checksums of each MiB, computed three at a time.
[[nodiscard]] inline std::uint32_t sum_of_sums(const void* data, std::size_t bytes) {
    ChunkSums chunks;
    chunks.add(data, bytes);
    const std::vector<std::uint32_t> sums = chunks.finish();
    return crc32c(std::string_view(reinterpret_cast<const char*>(sums.data()),
                                   sums.size() * sizeof(std::uint32_t)));
}

} // namespace rtrain::checkpoint
