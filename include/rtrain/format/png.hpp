// SPDX-License-Identifier: Apache-2.0
/// @file
/// PNG, decoded by libpng. Part of the images component: the program links rtrain::images. Includes
/// no libtorch.
#pragma once

#include <rtrain/format/image.hpp>

#include <png.h>

#include <array>
#include <concepts>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rtrain::format {

/// A PNG file in memory, which must outlive this object.
class PngImage {
public:
    [[nodiscard]] static bool is_one(std::string_view file) noexcept {
        return file.starts_with("\x89PNG");
    }

    /// Reads the header; allocates no memory for pixels. Throws ImageError.
    explicit PngImage(std::string_view file) : input_{.rest = file} {
        guarded([this] {
            png_set_read_fn(reader_.png, &input_, &read);
            // Ignore colour profiles, comments and other ancillary chunks: unused data cannot do
            // harm.
            png_set_keep_unknown_chunks(reader_.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
            png_read_info(reader_.png, reader_.info);
        });
        size_ = {.height = png_get_image_height(reader_.png, reader_.info),
                 .width = png_get_image_width(reader_.png, reader_.info)};
    }
    PngImage(const PngImage&) = delete;
    PngImage& operator=(const PngImage&) = delete;
    ~PngImage() = default;

    [[nodiscard]] ImageSize size() const noexcept { return size_; }
    /// Bits per channel: 16, or at most 8.
    [[nodiscard]] int bits() const noexcept { return png_get_bit_depth(reader_.png, reader_.info); }
    /// Same as size(): unlike JPEG, PNG decodes to one size only.
    [[nodiscard]] ImageSize size_for(ImageSize /*least*/) const noexcept { return size_; }

    /// Decodes to size(); call it once. Writes rows of pixels, starting at the top left corner,
    /// into `pixels`. 8-bit samples: palettes and narrower samples are expanded, 16-bit samples
    /// keep their high byte. 16-bit samples: all are expanded to 16 bits. Alpha is dropped. Throws
    /// ImageError, also when the file is truncated.
    template <class Sample>
    requires std::same_as<Sample, std::uint8_t> || std::same_as<Sample, std::uint16_t>
    void decode(ImageSize /*size*/, ImageMode mode, Sample* pixels) {
        const bool is_coloured =
            (png_get_color_type(reader_.png, reader_.info) & PNG_COLOR_MASK_COLOR) != 0;
        std::vector<Sample> coloured; // input of the conversion to grey
        const bool becomes_grey = is_coloured && mode == ImageMode::grey;
        if (becomes_grey) {
            coloured.resize(static_cast<std::size_t>(size_.pixels()) * 3);
        }
        auto* const target =
            reinterpret_cast<std::uint8_t*>(becomes_grey ? coloured.data() : pixels);
        const auto row_bytes =
            static_cast<std::size_t>(size_.width * (is_coloured ? 3 : channels_of(mode))) *
            sizeof(Sample);
        guarded([this, target, row_bytes, to_rgb = !is_coloured && mode == ImageMode::rgb] {
            png_set_expand(reader_.png);
            if constexpr (sizeof(Sample) == 1) {
                png_set_strip_16(reader_.png);
            } else {
                png_set_expand_16(reader_.png);
                png_set_swap(reader_.png); // to native byte order
            }
            png_set_strip_alpha(reader_.png);
            if (to_rgb) {
                png_set_gray_to_rgb(reader_.png);
            }
            const int passes = png_set_interlace_handling(reader_.png);
            png_read_update_info(reader_.png, reader_.info);
            if (png_get_rowbytes(reader_.png, reader_.info) != row_bytes) {
                png_error(reader_.png, "the length of a row contradicts the header");
            }
            for (int pass = 0; pass < passes; ++pass) {
                for (std::int64_t row = 0; row < size_.height; ++row) {
                    png_read_row(reader_.png, target + static_cast<std::size_t>(row) * row_bytes,
                                 nullptr);
                }
            }
            png_read_end(reader_.png, nullptr);
        });
        for (std::size_t at = 0; at < coloured.size(); at += 3) {
            *pixels++ = grey_of(&coloured[at]);
        }
    }

private:
    struct Input {
        std::string_view rest;
        std::array<char, 128> error{}; ///< message
    };

    struct Reader {
        explicit Reader(Input& input)
            : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, &fail, &ignore)),
              info(png == nullptr ? nullptr : png_create_info_struct(png)) {
            if (info == nullptr) {
                png_destroy_read_struct(&png, nullptr, nullptr);
                throw std::bad_alloc();
            }
        }
        Reader(const Reader&) = delete;
        Reader& operator=(const Reader&) = delete;
        ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
        png_structp png;
        png_infop info;
    };

    /// Calls libpng, which leaves `action` by longjmp on errors: destructors would not run.
    template <class Action>
    requires std::is_trivially_destructible_v<Action>
    void guarded(Action action) {
        if (setjmp(png_jmpbuf(reader_.png)) != 0) { // NOLINT(cert-err52-cpp)
            throw ImageError(std::string("as PNG: ") + input_.error.data());
        }
        action();
    }

    [[noreturn]] static void fail(png_structp png, png_const_charp message) {
        auto& input = *static_cast<Input*>(png_get_error_ptr(png));
        std::snprintf(input.error.data(), input.error.size(), "%s", message);
        png_longjmp(png, 1);
    }
    static void ignore(png_structp /*png*/, png_const_charp /*message*/) {}

    static void read(png_structp png, png_bytep target, std::size_t bytes) {
        std::string_view& rest = static_cast<Input*>(png_get_io_ptr(png))->rest;
        if (bytes > rest.size()) {
            png_error(png, "the file is cut off");
        }
        std::memcpy(target, rest.data(), bytes);
        rest.remove_prefix(bytes);
    }

    Input input_;
    Reader reader_{input_};
    ImageSize size_;
};

} // namespace rtrain::format
