// SPDX-License-Identifier: Apache-2.0
/// @file
/// Image files as data sets: read_images(). Part of the component images: the program links
/// rtrain::images.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/images/image_classes.hpp>
#include <rtrain/data/images/image_decoder.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Options of read_images().
struct ImageOptions {
    /// Each image is resized to this: {height, width}. {}: all images have one size.
    ImageSize size = {};
    ImageMode mode = ImageMode::rgb; ///< or grey
    bool labels = true;              ///< add them as a column
    /// The class names: a file of the n-th has the label n, from 0. Empty: those of the files,
    /// sorted by name.
    std::vector<std::string> classes = {};
    bool include_paths = false; ///< add them as a column
    /// The largest size of an image in its file. The default is Pillow's.
    std::int64_t max_pixels = 89'478'485;
    OnError on_error = OnError::raise; ///< for a file that is not an image
    std::int64_t max_errors = 100;     ///< skipped bad files, above which reading fails
    /// Which files to read.
    FileOptions files = {.endings = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"}};
    /// Bits of a channel. 0: 8, and a PNG of 16 is an error. 8: the higher 8 of 16 are used, as in
    /// Pillow. 16: "image" is int32 of 0 to 65535; 8 bits are multiplied by 257.
    int bits = 0;
};

/// Image files, by row number: each is opened when its row is read.
class ImageFiles final : public Dataset::Source {
public:
    /// `labels` has one per file, or is empty.
    ImageFiles(std::vector<storage::RandomAccessFile> files, std::vector<std::int64_t> labels,
               ImageOptions options)
        : files_(std::move(files)), labels_(std::move(labels)), options_(std::move(options)),
          decoder_(options_.mode, options_.max_pixels, options_.bits),
          bad_(options_.on_error, options_.max_errors) {
        for (std::size_t i = 0; i < files_.size(); ++i) {
            const std::string& path = files_[i].path();
            const auto name = std::string_view(path).substr(path.rfind('/') + 1);
            content_ = hash_of(content_, files_[i].size(), checkpoint::crc32c(name),
                               labels_.empty() ? 0 : labels_[i]);
        }
    }

    [[nodiscard]] std::int64_t size() const override {
        return static_cast<std::int64_t>(files_.size());
    }

    /// Computed from names, sizes and labels, without reading the files.
    [[nodiscard]] std::uint64_t content() const override { return content_; }

    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        const at::Tensor numbers = indices.contiguous();
        const auto* const number = numbers.const_data_ptr<std::int64_t>();
        const ImageSize size = size_of_all();
        at::Tensor images = at::empty(
            {numbers.numel(), format::channels_of(options_.mode), size.height, size.width},
            decoder_.type());
        auto* image = static_cast<std::uint8_t*>(images.mutable_data_ptr());
        at::Tensor labels = at::empty({numbers.numel()}, at::kLong);
        auto* const label = labels.mutable_data_ptr<std::int64_t>();
        TextBuilder paths;
        for (std::int64_t i = 0; i < numbers.numel(); ++i) {
            const std::size_t file = read_or_stand_in(static_cast<std::size_t>(number[i]), image);
            image += decoder_.bytes_of(size);
            if (options_.labels) {
                label[i] = labels_[file];
            }
            if (options_.include_paths) {
                paths.add(files_[file].uri());
            }
        }
        Batch::Columns columns{{"image", std::move(images)}};
        if (options_.labels) {
            columns.emplace_back("label", std::move(labels));
        }
        Batch::RaggedColumns ragged;
        if (options_.include_paths) {
            ragged.emplace_back("path", paths.finish());
        }
        return {std::move(columns), std::move(ragged)};
    }

private:
    [[nodiscard]] bool may_resize() const noexcept { return options_.size.height > 0; }

    /// The size of all images: from the options, or else from the first image.
    [[nodiscard]] ImageSize size_of_all() const {
        if (may_resize()) {
            return options_.size;
        }
        std::call_once(once_, [this] {
            static_cast<void>(first_good(0, [this](std::size_t file) {
                size_ = decoder_.size_of(bytes_of(file), files_[file].uri());
            }));
        });
        return size_;
    }

    /// Reads a file, or its replacement, into `planes`; returns the file read.
    [[nodiscard]] std::size_t read_or_stand_in(std::size_t row, std::uint8_t* planes) const {
        return first_good(row, [&](std::size_t file) {
            decoder_.decode(bytes_of(file), files_[file].uri(), size_of_all(), may_resize(),
                            planes);
        });
    }

    /// The row's file, or the last good one before it; if there is none, the first good one after
    /// it. Depends on nothing else, so all ranks and threads agree.
    template <class Read>
    [[nodiscard]] std::size_t first_good(std::size_t row, Read&& read) const {
        for (std::size_t i = 0; i < files_.size(); ++i) {
            const std::size_t file = i <= row ? row - i : i;
            try {
                read(file);
                return file;
            } catch (const DataError& error) {
                // A changed file is not a bad row, nor is one that only needs an option.
                if (error.is("RT-D29") || error.is("RT-D107")) {
                    throw;
                }
                bad_.add(error, files_[file].uri(), 0);
            }
        }
        throw DataError(
            "RT-D34",
            detail::concat(files_.front().uri(), " and all other ", files_.size() - 1,
                           " images cannot be read, so that no good image can replace them"));
    }

    [[nodiscard]] std::string bytes_of(std::size_t number) const {
        const storage::RandomAccessFile& file = files_[number];
        // A pixel has at most 8 bytes before it is packed.
        constexpr std::uint64_t beside = std::uint64_t{1} << 20U;
        if (file.size() > static_cast<std::uint64_t>(options_.max_pixels) * 8 + beside) {
            throw DataError("RT-D81", detail::concat(file.uri(), " has ", file.size(),
                                                     " bytes, more than an image of max_pixels = ",
                                                     options_.max_pixels, " takes"));
        }
        const Reading reading(ProcessContext::current().readings, file.uri());
        require_unchanged(file);
        std::string bytes = file.filesystem().is_local()
                                ? file.read_at(0, static_cast<std::size_t>(file.size()))
                                : file.filesystem().read(file.path());
        if (bytes.size() != file.size()) {
            throw changed_file(
                file, detail::concat("it had ", file.size(), " bytes, and has ", bytes.size()));
        }
        return bytes;
    }

    std::vector<storage::RandomAccessFile> files_;
    std::vector<std::int64_t> labels_;
    ImageOptions options_;
    ImageDecoder decoder_;
    BadRows bad_;
    std::uint64_t content_ = 0;
    mutable std::once_flag once_;
    mutable ImageSize size_; ///< of the first image
};

/// The classes of images, sorted by name: label n of read_images() is the n-th of them, from 0.
/// Lists the files immediately. Throws DataError as list_files(), and RT-D84.
///
/// @code
/// const auto classes = rtrain::data::image_classes("photos/train");
/// auto validation = rtrain::data::read_images("photos/val", {.size = {64, 64}, .classes =
/// classes});
/// @endcode
[[nodiscard]] inline std::vector<std::string> image_classes(const Paths& paths,
                                                            ImageOptions options = {}) {
    options.files.take_empty = true;
    return classes_of(list_files(paths, options.files), paths, options.files, options.classes)
        .names;
}

/// JPEG and PNG files, one row each, sorted by path. Columns: "image", uint8 of shape (rows,
/// channels, height, width); "label", int64 of shape (rows); optionally "path", ragged. The label
/// is the class of the file's directory, as in torchvision's ImageFolder: see ClassDirectories and
/// image_classes().
///
/// With a size, JPEG is decoded to the smallest n/8 of its height and width that is not below it.
/// JPEG and PNG are then resized by a triangle filter over all pixels (torchvision's
/// `Resize(antialias=True)`, Pillow's BILINEAR), with separate factors for height and width.
/// Without a size, pixels are as in Pillow, and all images must have the same size. EXIF
/// orientation and colour profiles are ignored.
///
/// Rows are read by number. The first read lists the directories; each file is opened when its row
/// is read. With data::Streaming too, rows are shuffled over all files, and only batches are kept
/// in memory.
///
/// Throws DataError: immediately RT-D83 for invalid options; on the first read as list_files(), and
/// RT-D84 a file has no class; for rows RT-D107 an image has 16 bits a channel, RT-D80 a file is
/// not an image or is damaged, RT-D81 an image is too large, RT-D82 it has a different size, all
/// three of which `.on_error` skips; RT-D34 too many are skipped, RT-D29 a file has changed.
///
/// @code
/// auto photos = rtrain::data::read_images("photos/train", {.size = {64, 64}});
/// @endcode
[[nodiscard]] inline Dataset read_images(Paths paths, ImageOptions options = {}) {
    const ImageSize size = options.size;
    constexpr std::int64_t most = std::int64_t{1} << 16U;
    const bool is_none = size == ImageSize{};
    if (!is_none &&
        (std::min(size.height, size.width) < 1 || std::max(size.height, size.width) > most)) {
        throw DataError("RT-D83",
                        detail::concat("read_images() was called with a size of ", size.height,
                                       " x ", size.width, " pixels; expected 1 to ", most,
                                       " each, or no .size"));
    }
    if (options.max_pixels < 1 || options.max_pixels > std::int64_t{1} << 30U) {
        throw DataError("RT-D83", detail::concat("read_images() was given max_pixels = ",
                                                 options.max_pixels, "; expected 1 to 2^30"));
    }
    if (options.bits != 0 && options.bits != 8 && options.bits != 16) {
        throw DataError("RT-D83", detail::concat("read_images() was given bits = ", options.bits,
                                                 "; expected 8, 16, or 0 for 8 without loss"));
    }
    options.files.take_empty = true; // a bad row
    return lazy([paths = std::move(paths), options = std::move(options)] {
        auto files = list_files(paths, options.files);
        std::vector<std::int64_t> labels;
        if (options.labels) {
            labels = classes_of(files, paths, options.files, options.classes).labels;
        }
        return Dataset(
            std::make_shared<const ImageFiles>(std::move(files), std::move(labels), options));
    });
}

} // namespace rtrain::data
