// SPDX-License-Identifier: Apache-2.0
// Any bytes, as PNG. What is accepted fills as many pixels as it has said, in each mode.
#include "require.hpp"

#include <rtrain/format/png.hpp>

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace rtrain::format;

namespace {

/// The file with the checksums that its chunks should have: else hardly any change gets beyond
/// them.
std::string with_sound_sums(std::string file) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(file[at]); };
    for (std::size_t at = 8; at + 12 <= file.size();) {
        const std::size_t length = std::size_t{byte(at)} << 24U | std::size_t{byte(at + 1)} << 16U |
                                   std::size_t{byte(at + 2)} << 8U | byte(at + 3);
        if (length > file.size() - at - 12) {
            break;
        }
        const auto* const begin = reinterpret_cast<const Bytef*>(file.data() + at + 4);
        const uLong sum = crc32(0, begin, static_cast<uInt>(length + 4));
        for (std::size_t i = 0; i < 4; ++i) {
            file[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xFFU);
        }
        at += length + 12;
    }
    return file;
}

void read(std::string_view file) {
    for (const ImageMode mode : {ImageMode::grey, ImageMode::rgb}) {
        try {
            PngImage image(file);
            const ImageSize size = image.size();
            require(size.height > 0 && size.width > 0, "an image has pixels");
            if (size.pixels() > 1 << 14) {
                return;
            }
            std::vector<std::uint8_t> pixels(
                static_cast<std::size_t>(size.pixels() * channels_of(mode)));
            image.decode(size, mode, pixels.data());
        } catch (const ImageError&) { // no PNG, or a damaged one
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    read(file);
    read(with_sound_sums(std::string(file)));
    return 0;
}
