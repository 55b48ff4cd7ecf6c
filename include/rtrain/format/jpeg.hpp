// SPDX-License-Identifier: Apache-2.0
/// @file
/// JPEG, decoded by libjpeg-turbo. Part of the images component: the program links rtrain::images.
/// Includes no libtorch.
#pragma once

#include <rtrain/format/image.hpp>

#include <turbojpeg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::format {

/// A JPEG file in memory, which must outlive this object. Each thread has one decoder for all its
/// images.
class JpegImage {
public:
    [[nodiscard]] static bool is_one(std::string_view file) noexcept {
        return file.starts_with("\xFF\xD8\xFF");
    }

    /// Reads the header. Throws ImageError.
    explicit JpegImage(std::string_view file) : file_(file) {
        void* const decoder = decoder_of_this_thread().get();
        int width = 0;
        int height = 0;
        int subsampling = -1;
        int space = -1;
        const int failed = tjDecompressHeader3(decoder, bytes(), file_.size(), &width, &height,
                                               &subsampling, &space);
        // A chroma subsampling for which TurboJPEG has no name is fine here.
        const bool is_unnamed = subsampling < 0 && width > 0 && height > 0 && space >= 0 &&
                                tjGetErrorCode(decoder) == TJERR_FATAL;
        const bool is_warned =
            width > 0 && height > 0 && tjGetErrorCode(decoder) == TJERR_WARNING; // decode() judges
        if (failed != 0 && !is_unnamed && !is_warned) {
            throw error();
        }
        if (width < 1 || height < 1) {
            throw ImageError("as JPEG: it has tables, but no image");
        }
        size_ = {.height = height, .width = width};
        is_cmyk_ = space == TJCS_CMYK || space == TJCS_YCCK;
    }

    [[nodiscard]] ImageSize size() const noexcept { return size_; }
    [[nodiscard]] int bits() const noexcept { return 8; } ///< bits per channel

    /// The smallest size that is cheap to decode to and is at least `least` in height and width:
    /// n/8 of the file's size, rounded up, for some n from 1 to 8.
    [[nodiscard]] ImageSize size_for(ImageSize least) const noexcept {
        const auto eighths = [](std::int64_t length, std::int64_t n) {
            return (length * n + 7) / 8;
        };
        for (std::int64_t n = 1; n < 8; ++n) {
            const ImageSize scaled{eighths(size_.height, n), eighths(size_.width, n)};
            if (scaled.height >= least.height && scaled.width >= least.width) {
                return scaled;
            }
        }
        return size_;
    }

    /// Decodes to a size that size_for() or size() returned: rows of pixels, starting at the top
    /// left corner, into `pixels`. Chroma is interpolated and the slow, exact transform used, as
    /// Pillow does. CMYK colours are assumed to be inverted, as Adobe's programs write them. Also
    /// throws ImageError where the decoder would only warn: such an image is incomplete, most often
    /// truncated. Extraneous bytes before a marker, which some cameras write, are skipped.
    void decode(ImageSize size, ImageMode mode, std::uint8_t* pixels) const {
        if (!is_cmyk_) {
            decode_as(mode == ImageMode::grey ? TJPF_GRAY : TJPF_RGB, size, pixels);
            return;
        }
        std::vector<std::uint8_t> cmyk(static_cast<std::size_t>(size.pixels()) * 4);
        decode_as(TJPF_CMYK, size, cmyk.data());
        for (std::size_t at = 0; at < cmyk.size(); at += 4) {
            std::uint8_t rgb[3];
            for (std::size_t i = 0; i < 3; ++i) {
                rgb[i] = printed(cmyk[at + i], cmyk[at + 3]);
            }
            if (mode == ImageMode::grey) {
                *pixels++ = grey_of(rgb);
            } else {
                pixels = std::copy(rgb, rgb + 3, pixels);
            }
        }
    }

private:
    struct Destroy {
        void operator()(void* decoder) const noexcept { tjDestroy(decoder); }
    };
    using Decoder = std::unique_ptr<void, Destroy>;
    static Decoder& decoder_of_this_thread() {
        thread_local Decoder decoder;
        if (!decoder) {
            decoder.reset(tjInitDecompress());
        }
        return decoder ? decoder : throw std::bad_alloc();
    }

    /// Extraneous bytes, about which the decoder warns.
    struct Noise {
        unsigned count = 0;
        unsigned marker = 0; ///< the marker after them
        friend bool operator==(const Noise&, const Noise&) = default;
    };

    void decode_as(int format, ImageSize size, std::uint8_t* pixels) const {
        constexpr int most = 64; // attempts
        std::string file;        // without the extraneous bytes
        std::string tried;
        const auto fails = [&](std::string_view bytes) {
            return failure_of(bytes, format, size, pixels);
        };
        std::optional<ImageError> failure = fails(file_);
        for (int tries = 0; failure && tries < most;) {
            const std::optional<Noise> noise = noise_in(failure->what());
            if (!noise) {
                throw *failure;
            }
            const std::string_view all = file.empty() ? file_ : file;
            const char marker[] = {'\xFF', static_cast<char>(noise->marker)};
            bool has_less = false;
            for (std::size_t at = all.rfind({marker, 2}); !has_less && at != all.npos && at > 0;
                 at = all.rfind({marker, 2}, at - 1)) {
                tried = without(all, at, noise->count);
                if (tried.empty()) {
                    continue;
                }
                if (++tries > most) {
                    throw *failure;
                }
                auto next = fails(tried);
                const auto left = next ? noise_in(next->what()) : std::nullopt;
                has_less = !next || (left && left != noise);
                failure = has_less ? std::move(next) : std::move(failure);
            }
            if (!has_less) {
                throw *failure;
            }
            file = std::move(tried);
        }
        if (failure) {
            throw *failure;
        }
    }

    [[nodiscard]] static std::optional<ImageError>
    failure_of(std::string_view file, int format, ImageSize size, std::uint8_t* pixels) {
        constexpr int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
        const bool is_sound = tjDecompress2(decoder_of_this_thread().get(),
                                            reinterpret_cast<const unsigned char*>(file.data()),
                                            file.size(), pixels, static_cast<int>(size.width), 0,
                                            static_cast<int>(size.height), format, flags) == 0;
        return is_sound ? std::nullopt : std::optional(error());
    }

    [[nodiscard]] static std::optional<Noise> noise_in(const char* failure) {
        Noise noise;
        const char* const text = std::strstr(failure, "Corrupt JPEG data: ");
        const bool is_noise =
            text != nullptr &&
            std::sscanf(text, "Corrupt JPEG data: %u extraneous bytes before marker 0x%x",
                        &noise.count, &noise.marker) == 2;
        return is_noise ? std::optional(noise) : std::nullopt;
    }

    /// Returns `file` without `count` bytes before the marker at `at`, which may be preceded by any
    /// number of 0xFF bytes. Empty if there are fewer bytes, or they contain a marker: then they
    /// are not extraneous.
    [[nodiscard]] static std::string without(std::string_view file, std::size_t at,
                                             std::size_t count) {
        while (at > 0 && file[at - 1] == '\xFF') {
            --at;
        }
        if (count > at) {
            return {};
        }
        for (std::size_t i = at - count; i + 1 < at; ++i) {
            if (file[i] == '\xFF' && file[i + 1] != '\0' && file[i + 1] != '\xFF') {
                return {};
            }
        }
        return std::string(file.substr(0, at - count)).append(file.substr(at));
    }

    /// Converts an inverted CMYK ink and its black to an RGB sample, rounded as by Pillow.
    [[nodiscard]] static std::uint8_t printed(unsigned colour, unsigned black) noexcept {
        const unsigned product = (255 - colour) * black + 128;
        return static_cast<std::uint8_t>(black - (((product >> 8U) + product) >> 8U));
    }

    [[nodiscard]] const unsigned char* bytes() const noexcept {
        return reinterpret_cast<const unsigned char*>(file_.data());
    }
    /// Returns the decoder's error and destroys the decoder: after an error in a header it would
    /// continue there with the next image (libjpeg-turbo 2.1.5).
    [[nodiscard]] static ImageError error() {
        Decoder& decoder = decoder_of_this_thread();
        ImageError error(std::string("as JPEG: ") + tjGetErrorStr2(decoder.get()));
        decoder.reset();
        return error;
    }

    std::string_view file_;
    ImageSize size_;
    bool is_cmyk_ = false;
};

} // namespace rtrain::format
