// SPDX-License-Identifier: Apache-2.0
// Any bytes, as JPEG. What is accepted fills as many pixels as it has said, in each size and mode.
#include "require.hpp"

#include <rtrain/format/jpeg.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

using namespace rtrain::format;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    try {
        const JpegImage image(file);
        const ImageSize whole = image.size();
        require(whole.height > 0 && whole.width > 0, "an image has pixels");
        if (whole.pixels() > 1 << 14) {
            return 0;
        }
        for (const ImageMode mode : {ImageMode::grey, ImageMode::rgb}) {
            for (const ImageSize least : {whole, ImageSize{3, 5}}) {
                const ImageSize scaled = image.size_for(least);
                require(scaled.height <= whole.height && scaled.width <= whole.width,
                        "an image is not enlarged");
                std::vector<std::uint8_t> pixels(
                    static_cast<std::size_t>(scaled.pixels() * channels_of(mode)));
                image.decode(scaled, mode, pixels.data());
            }
        }
    } catch (const ImageError&) { // no JPEG, or a damaged one
    }
    return 0;
}
