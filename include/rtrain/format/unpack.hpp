// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decompresses gzip and zstd sequentially, in pieces. Includes no libtorch. libzstd is loaded on
/// first use: its headers are rarely installed, while every Debian has the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <dlfcn.h>
#include <zlib.h>

namespace rtrain::format {

/// A compressed file is damaged.
class UnpackError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Packing : unsigned char { none, gzip, zstd };

/// Returns the compression of a file from its first bytes, at least 4.
[[nodiscard]] inline Packing packing_of(std::string_view begin) noexcept {
    return begin.starts_with("\x1F\x8B")           ? Packing::gzip
           : begin.starts_with("\x28\xB5\x2F\xFD") ? Packing::zstd
                                                   : Packing::none;
}

[[nodiscard]] inline std::string_view name_of(Packing packing) noexcept {
    return packing == Packing::gzip ? "gzip" : packing == Packing::zstd ? "zstd" : "nothing";
}

namespace internal {

inline constexpr std::size_t unpacked_piece = std::size_t{1} << 18U;

/// Consecutive gzip members; zeros may follow them.
class Gunzip {
public:
    Gunzip() {
        constexpr int gzip_only = MAX_WBITS + 16;
        if (inflateInit2(&stream_, gzip_only) != Z_OK) {
            throw std::bad_alloc();
        }
    }
    Gunzip(const Gunzip&) = delete;
    Gunzip& operator=(const Gunzip&) = delete;
    ~Gunzip() { inflateEnd(&stream_); }

    template <class Sink>
    void add(std::string_view packed, Sink& sink) {
        while (!packed.empty()) {
            if (has_ended_) {
                packed.remove_prefix(std::min(packed.find_first_not_of('\0'), packed.size()));
                if (packed.empty()) {
                    return;
                }
                inflateReset(&stream_);
                has_ended_ = false;
            }
            stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
            stream_.avail_in = static_cast<uInt>(packed.size());
            do {
                stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
                stream_.avail_out = static_cast<uInt>(out_.size());
                const int state = inflate(&stream_, Z_NO_FLUSH);
                if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) {
                    throw UnpackError(stream_.msg == nullptr ? "damaged" : stream_.msg);
                }
                sink(std::string_view(out_).substr(0, out_.size() - stream_.avail_out));
                has_ended_ = state == Z_STREAM_END;
            } while (!has_ended_ && stream_.avail_out == 0);
            packed.remove_prefix(packed.size() - stream_.avail_in);
        }
    }
    [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

private:
    z_stream stream_{};
    std::string out_ = std::string(unpacked_piece, '\0');
    bool has_ended_ = false;
};

/// Consecutive zstd frames.
class Unzstd {
public:
    Unzstd() : stream_(api().create(), api().free) {
        if (!stream_) {
            throw std::bad_alloc();
        }
    }

    template <class Sink>
    void add(std::string_view packed, Sink& sink) {
        In in{packed.data(), packed.size(), 0};
        bool is_full = false;
        while (in.at < in.size || is_full) {
            Out out{out_.data(), out_.size(), 0};
            expected_ = api().decompress(stream_.get(), &out, &in);
            if (api().is_error(expected_) != 0) {
                throw UnpackError(api().error_name(expected_));
            }
            sink(std::string_view(out_).substr(0, out.at));
            is_full = out.at == out.size && expected_ != 0; // else no output is pending
        }
    }
    [[nodiscard]] bool has_ended() const noexcept { return expected_ == 0; }

private:
    // Same layout as in zstd.h since 1.0.
    struct In {
        const void* data;
        std::size_t size;
        std::size_t at;
    };
    struct Out {
        void* data;
        std::size_t size;
        std::size_t at;
    };
    struct Api {
        void* (*create)();
        std::size_t (*free)(void*);
        std::size_t (*decompress)(void*, Out*, In*);
        unsigned (*is_error)(std::size_t);
        const char* (*error_name)(std::size_t);
    };

    [[nodiscard]] static const Api& api() {
        static const Api loaded = [] {
            void* const library = ::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
            Api api{};
            const auto find = [&](auto& function, const char* name) {
                void* const symbol = library == nullptr ? nullptr : ::dlsym(library, name);
                if (symbol == nullptr) {
                    throw UnpackError("libzstd.so.1 cannot be loaded: install libzstd (apt-get "
                                      "install libzstd1), or decompress the file");
                }
                function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
            };
            find(api.create, "ZSTD_createDStream");
            find(api.free, "ZSTD_freeDStream");
            find(api.decompress, "ZSTD_decompressStream");
            find(api.is_error, "ZSTD_isError");
            find(api.error_name, "ZSTD_getErrorName");
            return api;
        }();
        return loaded;
    }

    std::unique_ptr<void, std::size_t (*)(void*)> stream_;
    std::string out_ = std::string(unpacked_piece, '\0');
    std::size_t expected_ = 1; ///< approximate bytes; 0: a frame has ended
};

} // namespace internal

/// Decompresses the pieces that `next_piece()` returns, until one is empty, into `sink(text)`.
/// Throws UnpackError.
template <class NextPiece, class Sink>
void unpack(Packing packing, NextPiece&& next_piece, Sink&& sink) {
    const auto run = [&](auto unpacker) {
        for (std::string piece = next_piece(); !piece.empty(); piece = next_piece()) {
            unpacker->add(piece, sink);
        }
        if (!unpacker->has_ended()) {
            throw UnpackError("the file is cut off");
        }
    };
    if (packing == Packing::gzip) {
        run(std::make_unique<internal::Gunzip>());
    } else {
        run(std::make_unique<internal::Unzstd>());
    }
}

} // namespace rtrain::format
