// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door idx.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/readers/idx.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <ATen/Functions.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

namespace idx {

/// Reads both plain and gzip files.
class File {
public:
    explicit File(const std::filesystem::path& path) : path_(path.string()) {
        if (!std::filesystem::is_regular_file(path)) {
            throw DataError("RT-D3", detail::concat("cannot open ", path_, ": no such file"));
        }
        file_.reset(gzopen(path_.c_str(), "rb"));
        if (!file_) {
            throw DataError("RT-D3", detail::concat("cannot open ", path_, " for reading"));
        }
        gzbuffer(file_.get(), 1U << 18);
    }

    /// Returns the bytes read, fewer than requested only at the end of the file. Throws DataError
    /// [RT-D5] if the gzip stream is truncated or damaged.
    std::size_t read(void* target, std::size_t bytes) {
        auto* out = static_cast<char*>(target);
        std::size_t total = 0;
        while (total < bytes) {
            const auto piece = static_cast<unsigned>(std::min(bytes - total, std::size_t{1} << 30));
            const int got = gzread(file_.get(), out + total, piece);
            if (got <= 0) {
                break;
            }
            total += static_cast<std::size_t>(got);
        }
        int error = Z_OK;
        const char* const text = gzerror(file_.get(), &error);
        if (error != Z_OK && error != Z_STREAM_END) {
            throw DataError("RT-D5", detail::concat(path_, " is truncated or damaged: ", text));
        }
        return total;
    }

    /// True if the file is gzip.
    [[nodiscard]] bool packed() const { return gzdirect(file_.get()) == 0; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
    struct Close {
        void operator()(gzFile_s* file) const noexcept { gzclose(file); }
    };
    std::string path_;
    std::unique_ptr<gzFile_s, Close> file_;
};

/// The sizes in the header of an IDX file of unsigned bytes with `dimensions` dimensions.
[[nodiscard]] inline std::vector<std::int64_t> read_header(File& file, int dimensions) {
    std::array<std::uint8_t, 4> magic{};
    constexpr std::uint8_t unsigned_byte = 0x08;
    if (file.read(magic.data(), magic.size()) != magic.size() || magic[0] != 0 || magic[1] != 0 ||
        magic[2] != unsigned_byte || magic[3] != dimensions) {
        throw DataError("RT-D4", detail::concat(file.path(), " is not an IDX file of bytes with ",
                                                dimensions,
                                                " dimensions: expected the magic number 00 00 08 0",
                                                dimensions, "; check that it is the right file"));
    }
    std::vector<std::int64_t> shape;
    for (int i = 0; i < dimensions; ++i) {
        std::array<std::uint8_t, 4> size{};
        if (file.read(size.data(), size.size()) != size.size()) {
            throw DataError("RT-D5", file.path() + " is truncated: it ends within its header");
        }
        shape.push_back((std::int64_t{size[0]} << 24) | (std::int64_t{size[1]} << 16) |
                        (std::int64_t{size[2]} << 8) | std::int64_t{size[3]});
    }
    return shape;
}

/// Bytes of data according to the header. Throws before allocating if the file cannot hold them:
/// deflate packs at most 1032:1.
[[nodiscard]] inline std::int64_t promised_bytes(const File& file,
                                                 const std::vector<std::int64_t>& shape) {
    constexpr std::int64_t most_packed = 1032;
    const auto on_disk = static_cast<std::int64_t>(std::filesystem::file_size(file.path()));
    std::int64_t bytes = 1;
    for (const std::int64_t size : shape) {
        if (size > 0 && bytes > on_disk * most_packed / size) {
            throw DataError("RT-D5",
                            file.path() +
                                " is truncated: it is too short for the sizes in its header");
        }
        bytes *= size;
    }
    return bytes;
}

/// Bytes before the data.
[[nodiscard]] inline std::uint64_t header_bytes(int dimensions) {
    return 4 * (1 + static_cast<std::uint64_t>(dimensions));
}

/// Throws if the file has less data than its header promises.
inline void require_data(const std::string& path, std::uint64_t got, std::uint64_t promised) {
    if (got < promised) {
        throw DataError("RT-D5", detail::concat(path, " is truncated: it holds ", got,
                                                " bytes of data, its header promises ", promised));
    }
    if (got > promised) {
        throw DataError("RT-D5", detail::concat(path, " holds more than the ", promised,
                                                " bytes of data that its header promises"));
    }
}

/// Reads the data after the header.
[[nodiscard]] inline at::Tensor read_data(File& file, const std::vector<std::int64_t>& shape,
                                          std::uint64_t bytes) {
    at::Tensor tensor = at::empty(shape, at::kByte);
    const std::size_t got = file.read(tensor.data_ptr(), bytes);
    std::uint8_t excess = 0;
    require_data(file.path(), got + (got == bytes ? file.read(&excess, 1) : 0), bytes);
    return tensor;
}

/// Maps the data of a plain file, shared by all processes of the node.
[[nodiscard]] inline at::Tensor map_data(const std::filesystem::path& path, std::uint64_t header,
                                         const std::vector<std::int64_t>& shape,
                                         std::uint64_t bytes) {
    auto mapping = std::make_shared<const storage::Mapping>(path);
    const std::uint64_t size = mapping->bytes().size();
    require_data(path.string(), size - std::min(header, size), bytes);
    if (bytes == 0) {
        return at::empty(shape, at::kByte);
    }
    return at::from_blob(
        mapping->data() + header, shape, [mapping](void* /*data*/) mutable { mapping.reset(); },
        at::kByte);
}

RTRAIN_DOOR at::Tensor read(const std::filesystem::path& path, int dimensions) {
    File file(path);
    const std::vector<std::int64_t> shape = read_header(file, dimensions);
    const auto bytes = static_cast<std::uint64_t>(promised_bytes(file, shape));
    if (!file.packed()) {
        return map_data(path, header_bytes(dimensions), shape, bytes);
    }
    return read_data(file, shape, bytes);
}

/// Detects the errors of read(), without reading the data of an intact file.
inline void check(const std::filesystem::path& path, int dimensions) {
    File file(path);
    const std::vector<std::int64_t> shape = read_header(file, dimensions);
    const std::uint64_t expected =
        static_cast<std::uint64_t>(promised_bytes(file, shape)) + header_bytes(dimensions);
    const std::uint64_t on_disk = std::filesystem::file_size(path);
    bool sound = on_disk == expected;
    if (file.packed() && on_disk > 4) { // a gzip file ends in its unpacked size modulo 2^32
        std::array<std::uint8_t, 4> size{};
        std::ifstream stream(path, std::ios::binary);
        stream.seekg(-4, std::ios::end);
        stream.read(reinterpret_cast<char*>(size.data()), size.size());
        const std::uint32_t unpacked = std::uint32_t{size[0]} | (std::uint32_t{size[1]} << 8) |
                                       (std::uint32_t{size[2]} << 16) |
                                       (std::uint32_t{size[3]} << 24);
        sound = unpacked == static_cast<std::uint32_t>(expected);
    }
    if (!sound) { // or gzip in several members: only reading can tell
        (void)read(path, dimensions);
    }
}

/// `directory/name`, or `directory/name.gz` if only that exists.
[[nodiscard]] inline std::filesystem::path find(const std::filesystem::path& directory,
                                                const std::string& name) {
    const std::filesystem::path plain = directory / name;
    const std::filesystem::path packed = directory / (name + ".gz");
    return !std::filesystem::exists(plain) && std::filesystem::exists(packed) ? packed : plain;
}

} // namespace idx

RTRAIN_DOOR Dataset idx_images(const std::filesystem::path& images,
                               const std::filesystem::path& labels) {
    class Images : public Dataset::Source {
    public:
        Images(const std::filesystem::path& images, const std::filesystem::path& labels)
            : images_(idx::read(images, 3)), labels_(idx::read(labels, 1)) {
            if (images_.size(0) != labels_.size(0)) {
                throw DataError("RT-D6", detail::concat(images.string(), " holds ", images_.size(0),
                                                        " images, but ", labels.string(), " holds ",
                                                        labels_.size(0), " labels"));
            }
        }
        [[nodiscard]] std::int64_t size() const override { return images_.size(0); }
        /// Computed from all labels and the first images, as for other files: see FileIndex.
        [[nodiscard]] std::uint64_t content() const override {
            const auto sum_of = [](const at::Tensor& bytes, std::size_t most) {
                return checkpoint::crc32c(
                    std::string_view(static_cast<const char*>(bytes.const_data_ptr()),
                                     std::min(bytes.nbytes(), most)));
            };
            return hash_of(images_.size(1), images_.size(2), sum_of(images_, head_bytes),
                           sum_of(labels_, labels_.nbytes()));
        }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            constexpr double white = 255.0;
            return Batch(
                {{"image",
                  images_.index_select(0, indices).unsqueeze(1).to(at::kFloat).div_(white)},
                 {"label", labels_.index_select(0, indices).to(at::kLong)}});
        }

    private:
        at::Tensor images_;
        at::Tensor labels_;
    };
    idx::check(images, 3);
    idx::check(labels, 1);
    return lazy([=] { return Dataset(std::make_shared<Images>(images, labels)); });
}

RTRAIN_DOOR Dataset fashion_mnist(const std::filesystem::path& directory, Split split) {
    const std::string prefix = split == Split::train ? "train" : "t10k";
    return idx_images(idx::find(directory, prefix + "-images-idx3-ubyte"),
                      idx::find(directory, prefix + "-labels-idx1-ubyte"));
}

} // namespace rtrain::data
