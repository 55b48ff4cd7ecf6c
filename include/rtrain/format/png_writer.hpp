// SPDX-License-Identifier: Apache-2.0
/// @file
/// Encodes pixels as a PNG file with zlib alone; png.hpp reads such files.
#pragma once

#include <rtrain/format/image.hpp>

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

namespace rtrain::format {

namespace png {

inline void put_big_endian(std::string& file, std::uint64_t value) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        file += static_cast<char>(value >> shift & 0xffU);
    }
}

/// `kind` has 4 letters.
inline void put_png_chunk(std::string& file, std::string_view kind, std::string_view content) {
    put_big_endian(file, content.size());
    const std::size_t begin = file.size();
    file += kind;
    file += content;
    const auto* const summed = reinterpret_cast<const Bytef*>(file.data() + begin);
    put_big_endian(file, ::crc32_z(0, summed, file.size() - begin));
}

/// Applies the PNG filter "Sub": each byte minus that of the pixel to its left. Neighbouring pixels
/// are similar, so small numbers repeat and compress well.
[[nodiscard]] inline std::string png_rows(const std::uint8_t* pixels, std::size_t rows,
                                          std::size_t row_bytes, std::size_t channels) {
    std::string filtered;
    filtered.reserve(rows * (row_bytes + 1));
    for (std::size_t row = 0; row < rows; ++row, pixels += row_bytes) {
        filtered += '\1';
        for (std::size_t at = 0; at < row_bytes; ++at) {
            const int left = at < channels ? 0 : pixels[at - channels];
            filtered += static_cast<char>((pixels[at] - left) & 0xff);
        }
    }
    return filtered;
}

} // namespace png

/// `pixels`: rows, starting at the top left corner. `size` is at least one pixel and at most 2^31 -
/// 1 bytes.
[[nodiscard]] inline std::string encode_png(ImageSize size, ImageMode mode,
                                            const std::uint8_t* pixels) {
    const auto channels = static_cast<std::size_t>(channels_of(mode));
    const auto height = static_cast<std::size_t>(size.height);
    const auto width = static_cast<std::size_t>(size.width);
    const std::string rows = png::png_rows(pixels, height, width * channels, channels);
    uLongf bytes = ::compressBound(rows.size());
    std::string packed(bytes, '\0');
    // Favours speed: training waits for it.
    if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes,
                    reinterpret_cast<const Bytef*>(rows.data()), rows.size(),
                    Z_BEST_SPEED) != Z_OK) {
        throw std::bad_alloc();
    }
    packed.resize(bytes);

    constexpr char bits = 8;
    std::string header;
    png::put_big_endian(header, width);
    png::put_big_endian(header, height);
    header += bits;
    header += mode == ImageMode::grey ? '\0' : '\2';
    header.append(3, '\0'); // deflate, filters by row, not interlaced
    std::string file(png_begin);
    png::put_png_chunk(file, "IHDR", header);
    png::put_png_chunk(file, "IDAT", packed);
    png::put_png_chunk(file, "IEND", "");
    return file;
}

} // namespace rtrain::format
