// SPDX-License-Identifier: Apache-2.0
// Image files: pixels as Pillow reads them, classes by directory, and files that are no images.
#include "support/thrown.hpp"

#include <rtrain/data/images/images.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace images_test {

using namespace rtrain;
namespace fs = std::filesystem;
using test::contains;

namespace {

const fs::path fixtures = fs::path(RTRAIN_TEST_DATA) / "images";

using Texts = std::vector<std::string>;

data::Batch all_of(const data::Dataset& dataset) {
    return dataset.rows(at::arange(dataset.size(), at::kLong));
}

/// The message of the error that reading all rows throws.
std::string error_of(const data::Dataset& dataset) {
    try {
        static_cast<void>(all_of(dataset));
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

Texts paths_of(const data::Batch& batch, const fs::path& base) {
    Texts paths;
    for (std::int64_t row = 0; row < batch.size(); ++row) {
        paths.push_back(fs::path(batch.ragged("path").text(row)).lexically_relative(base).string());
    }
    return paths;
}

std::vector<std::int64_t> numbers_in(const at::Tensor& column) {
    const auto* const begin = column.const_data_ptr<std::int64_t>();
    return {begin, begin + column.numel()};
}

void put(const fs::path& from, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file(from, to);
}

const auto& expected() {
    static const auto tensors =
        checkpoint::safetensors::read((fixtures / "expected.safetensors").string());
    return tensors;
}

/// The greatest and the mean difference.
std::pair<double, double> difference(const at::Tensor& a, const at::Tensor& b) {
    REQUIRE(a.sizes() == b.sizes());
    const at::Tensor apart = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
    return {apart.max().item<double>(), apart.mean().item<double>()};
}

/// `count` pictures of classes that take turns: "class-0/0.png", "class-1/1.png", ...
void write_classes(const fs::path& directory, int classes, int count) {
    for (int i = 0; i < count; ++i) {
        put(fixtures / "kinds" / "png" / (i % 2 == 0 ? "rgb.png" : "palette.png"),
            directory / ("class-" + std::to_string(i % classes)) / (std::to_string(i) + ".png"));
    }
}

/// The most memory that this process has had since the file was written to, in bytes.
std::int64_t peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmHWM:")) {
            return std::stoll(line.substr(6)) * 1024;
        }
    }
    return 0;
}
void forget_peak_memory() {
    std::ofstream("/proc/self/clear_refs") << "5";
}

/// Rows of an epoch on one of `ranks`, as paths.
template <class D>
Texts epoch_of(const data::Dataset& dataset, int rank, int ranks, data::BatchOptions options) {
    options.shuffle = true;
    const data::Batches batches({.dataset = dataset, .policy = D{}, .rank = rank, .size = ranks},
                                options, std::make_shared<data::Position>());
    Texts rows;
    for (const auto& batch : batches) {
        CHECK(batch["image"].size(0) == batch.size());
        for (std::int64_t row = 0; row < batch.size(); ++row) {
            rows.emplace_back(batch.ragged("path").text(row));
        }
    }
    return rows;
}

} // namespace

TEST_CASE("Images.pixels_are_those_of_Pillow") {
    for (const std::string kind : {"jpeg", "png"}) {
        for (const data::ImageMode mode : {data::ImageMode::rgb, data::ImageMode::grey}) {
            const auto batch = all_of(data::read_images(
                fixtures / "kinds" / kind,
                {.mode = mode, .labels = false, .include_paths = true, .bits = 8}));
            CHECK((batch["image"].scalar_type() == at::kByte));
            CHECK(batch["image"].is_contiguous());
            const Texts names = paths_of(batch, fixtures / "kinds");
            CHECK(names.size() == (kind == "jpeg" ? 5 : 9));
            for (std::size_t row = 0; row < names.size(); ++row) {
                const std::string name =
                    names[row] + (mode == data::ImageMode::grey ? ".grey" : "");
                CAPTURE(name);
                const auto [greatest, mean] =
                    difference(batch["image"][static_cast<std::int64_t>(row)], expected().at(name));
                CHECK(greatest <= (kind == "jpeg" ? 1 : 0));
            }
        }
    }
}

TEST_CASE("Images.are_resized_as_by_Pillow") {
    for (const auto& size :
         {data::ImageSize{24, 32}, data::ImageSize{48, 64}, data::ImageSize{40, 40},
          data::ImageSize{13, 100}, data::ImageSize{110, 90}}) {
        CAPTURE(size.height);
        const auto batch =
            all_of(data::read_images(fixtures / "large", {.size = size, .labels = false}));
        const std::string suffix =
            ' ' + std::to_string(size.height) + ' ' + std::to_string(size.width);
        const auto [png, png_mean] =
            difference(batch["image"][1], expected().at("photo.png" + suffix));
        CHECK(png <= 1); // both round once in each direction
        const at::Tensor jpeg = batch["image"][0];
        if (expected().contains("scaled" + suffix)) { // in the same way
            CHECK(difference(jpeg, expected().at("scaled" + suffix)).first <= 2);
        }
        // A little sharper than what is decoded whole and then resized.
        CHECK(difference(jpeg, expected().at("photo.jpg" + suffix)).second < 2.5);
    }
}

TEST_CASE("Images.JPEG_is_decoded_to_the_smallest_eighths_that_are_enough") {
    const std::string file = storage::read_file(fixtures / "large" / "photo.jpg"); // 96 x 128
    const format::JpegImage image(file);
    const auto size_for = [&](std::int64_t height, std::int64_t width) {
        return image.size_for({height, width});
    };
    CHECK(size_for(1, 1) == data::ImageSize{12, 16});
    CHECK(size_for(12, 16) == data::ImageSize{12, 16});
    CHECK(size_for(13, 16) == data::ImageSize{24, 32});
    CHECK(size_for(12, 33) == data::ImageSize{36, 48});
    CHECK(size_for(96, 1) == data::ImageSize{96, 128});
    CHECK(size_for(500, 500) == data::ImageSize{96, 128});
    for (std::int64_t n = 1; n <= 8; ++n) {
        const data::ImageSize size{12 * n, 16 * n};
        std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.pixels()) * 3);
        image.decode(size, data::ImageMode::rgb, pixels.data());
        CHECK(std::accumulate(pixels.begin(), pixels.end(), 0.0) > 0);
    }
}

TEST_CASE("Images.with_odd_sampling_are_read") {
    // One component that is said to be sampled 2 x 1, which means nothing there.
    std::string grey = storage::read_file(fixtures / "kinds" / "jpeg" / "grey.jpg");
    const std::size_t frame = grey.find("\xFF\xC0");
    REQUIRE(frame != std::string::npos);
    grey[frame + 11] = 0x21;
    const format::JpegImage image(grey);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(image.size().pixels()));
    image.decode(image.size(), data::ImageMode::grey, pixels.data());
    const auto as_it_is = expected().at("jpeg/grey.jpg.grey");
    CHECK(difference(at::from_blob(pixels.data(), as_it_is.sizes(), at::kByte), as_it_is).first <=
          1);
}

TEST_CASE("Images.labels_come_from_directories") {
    const testing::ScratchDirectory scratch;
    const fs::path photos = scratch.path() / "photos";
    const fs::path picture = fixtures / "kinds" / "png" / "rgb.png";
    for (const char* const name : {"dog/1.png", "cat/b/2.PNG", "cat/a.png", "ant/x/y/3.png"}) {
        put(picture, photos / name);
    }
    std::ofstream(photos / "notes.txt") << "no image";
    const auto read = [&](const data::Paths& paths, data::ImageOptions options = {}) {
        options.include_paths = true;
        return all_of(data::read_images(paths, options));
    };
    const auto batch = read(photos.string() + "/");
    CHECK(paths_of(batch, photos) ==
          Texts{"ant/x/y/3.png", "cat/a.png", "cat/b/2.PNG", "dog/1.png"});
    CHECK(numbers_in(batch["label"]) == std::vector<std::int64_t>{0, 1, 1, 2});
    CHECK(batch["image"].sizes() == at::IntArrayRef{4, 3, 29, 37});
    CHECK(data::image_classes(photos) == Texts{"ant", "cat", "dog"});

    // Of a glob and of files, the directory that they are in.
    const data::Paths some{(photos / "*/*/*").string(), (photos / "dog/1.png").string()};
    CHECK(data::image_classes(some) == Texts{"b", "dog"});
    CHECK(numbers_in(read(some)["label"]) == std::vector<std::int64_t>{0, 1});
    // Of directories in a given one that are given themselves, what is in them.
    CHECK(data::image_classes({photos.string(), (photos / "ant").string()}) ==
          Texts{"cat", "dog", "x"});

    const Texts given{"dog", "bird", "cat"};
    const data::Paths two{(photos / "cat").string() + "/*.png", (photos / "dog/*").string()};
    CHECK(numbers_in(read(two, {.classes = given})["label"]) == std::vector<std::int64_t>{2, 0});
    const std::string other = error_of(data::read_images(photos, {.classes = given}));
    CHECK(contains(other, "ant/x/y/3.png has the class \"ant\""));
    CHECK(contains(other, "[RT-D84]"));
    CHECK(contains(error_of(data::read_images(photos / "dog")),
                   "dog/1.png is not in a directory that could be its class"));
    const auto plain = all_of(data::read_images(photos / "dog", {.labels = false}));
    CHECK(plain.columns().size() == 1);
}

TEST_CASE("Images.nothing_is_opened_before_its_row_is_read") {
    const testing::ScratchDirectory scratch;
    const auto later = data::read_images(scratch.path(), {.size = {8, 8}});
    for (int i = 0; i < 200; ++i) { // none of them an image
        const fs::path path = scratch.path() / "of" / (std::to_string(i) + ".png");
        storage::create_directories_durably(path.parent_path());
        std::ofstream(path) << "text";
    }
    put(fixtures / "large" / "photo.png", scratch.path() / "an" / "image.png");
    CHECK(later.size() == 201);
    const auto batch = later.take(1);
    CHECK(batch["image"].sizes() == at::IntArrayRef{1, 3, 8, 8});
    CHECK(numbers_in(batch["label"]) == std::vector<std::int64_t>{0});
    CHECK(contains(error_of(later), "of/0.png is neither JPEG nor PNG"));
}

TEST_CASE("Images.what_is_no_image_is_named") {
    const testing::ScratchDirectory scratch;
    const auto error_with = [&](std::string_view bytes, data::ImageOptions options = {}) {
        std::ofstream(scratch.path() / "bad.png", std::ios::binary) << bytes;
        options.labels = false;
        return error_of(data::read_images(scratch.path() / "bad.png", options));
    };
    for (const char* const name : {"jpeg/420.jpg", "jpeg/progressive.jpg", "png/rgb.png"}) {
        CAPTURE(name);
        const std::string sound = storage::read_file(fixtures / "kinds" / name);
        CHECK(error_with(sound) == "no error"); // whatever it is called
        for (std::size_t length = 0; length < sound.size(); length += 1 + length / 16) {
            CAPTURE(length);
            const std::string error = error_with(sound.substr(0, length));
            CHECK(contains(error, "bad.png"));
            CHECK(contains(error, "[RT-D80]"));
        }
        CHECK(contains(error_with(sound.substr(0, sound.size() - 1)), "[RT-D80]"));
    }
    CHECK(contains(error_with("not an image at all"), "is neither JPEG nor PNG"));
    CHECK(contains(error_with(""), "bad.png is empty"));
    const std::string bomb = error_with(storage::read_file(fixtures / "bomb.png"));
    CHECK(contains(bomb, "bad.png has 60000 x 60000 pixels"));
    CHECK(contains(bomb, "[RT-D81]"));
    const std::string photo = storage::read_file(fixtures / "large" / "photo.jpg");
    CHECK(contains(error_with(photo, {.max_pixels = 96 * 128 - 1}), "[RT-D81]"));
    CHECK(error_with(photo, {.max_pixels = 96 * 128}) == "no error");
    CHECK(contains(error_with(std::string(1 << 21, 'x'), {.max_pixels = 100}), "[RT-D81]"));
    CHECK(contains(error_of(data::read_images(scratch.path() / "gone.png")), "[RT-D25]"));
    const std::string sizes =
        error_of(data::read_images({(fixtures / "kinds" / "png").string() + "/*.png",
                                    (fixtures / "large" / "photo.png").string()},
                                   {.bits = 8}));
    CHECK(contains(sizes, "large/photo.png has 96 x 128 pixels, the first image has 29 x 37"));
    CHECK(contains(sizes, "[RT-D82]"));
    for (const auto& size :
         {data::ImageSize{0, 5}, data::ImageSize{-1, -1}, data::ImageSize{5, 1 << 17}}) {
        CHECK_THROWS_WITH_AS(static_cast<void>(data::read_images("x", {.size = size})),
                             doctest::Contains("[RT-D83]"), DataError);
    }
    CHECK_THROWS_AS(static_cast<void>(data::read_images("x", {.max_pixels = 0})), DataError);
}

TEST_CASE("Images.of_16_bits_are_exact_or_an_error") {
    const fs::path wide = fixtures / "kinds" / "png" / "16-bits.png";
    const std::string error =
        error_of(data::read_images(wide, {.labels = false, .on_error = data::OnError::skip}));
    CHECK(contains(error, "16-bits.png has 16 bits a channel"));
    CHECK(contains(error, ".bits = 16"));
    CHECK(contains(error, "[RT-D107]"));
    for (const data::ImageMode mode : {data::ImageMode::rgb, data::ImageMode::grey}) {
        const auto read = [&](const fs::path& path, int bits, data::ImageSize size = {}) {
            return all_of(data::read_images(
                path, {.size = size, .mode = mode, .labels = false, .bits = bits}))["image"];
        };
        const at::Tensor all = read(wide, 16);
        CHECK((all.scalar_type() == at::kInt));
        const bool has_low_bytes =
            all.bitwise_and(255).ne(all.bitwise_right_shift(8)).any().item<bool>();
        CHECK(has_low_bytes);
        if (mode == data::ImageMode::rgb) { // greys are computed of all bits
            CHECK(all.bitwise_right_shift(8).equal(read(wide, 8).to(at::kInt)));
        } else {
            const at::Tensor off = all.bitwise_right_shift(8) - read(wide, 8).to(at::kInt);
            CHECK(off.abs().max().item<std::int64_t>() <= 1);
        }
        for (const char* const name :
             {"png/rgb.png", "png/grey.png", "png/palette.png", "png/1-bit.png", "jpeg/444.jpg"}) {
            CAPTURE(name);
            const fs::path path = fixtures / "kinds" / name;
            const at::Tensor off = read(path, 16) - read(path, 0).to(at::kInt) * 257;
            CHECK(off.abs().max().item<std::int64_t>() <=
                  (mode == data::ImageMode::grey ? 257 : 0));
        }
        const at::Tensor small = read(wide, 16, {8, 8}).div(257.0);
        const at::Tensor bytes = read(wide, 8, {8, 8}).to(at::kDouble);
        CHECK((small - bytes).abs().max().item<double>() <= 1.5);
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(data::read_images("x", {.bits = 4})),
                         doctest::Contains("[RT-D83]"), DataError);
}

TEST_CASE("Images.names_may_end_in_any_case") {
    const testing::ScratchDirectory scratch;
    int number = 0;
    for (const char* const ending : {"jpg", "Jpg", "JPG", "jpe", "JPE", "jpeg", "Jpeg", "jfif"}) {
        put(fixtures / "large" / "photo.jpg",
            scratch.path() / "of" / (std::to_string(number++) + '.' + ending));
    }
    put(fixtures / "large" / "photo.png", scratch.path() / "of" / "8.Png");
    put(fixtures / "large" / "photo.png", scratch.path() / "of" / "9.txt");
    CHECK(data::read_images(scratch.path(), {.size = {8, 8}}).size() == 9);
}

TEST_CASE("Images.bytes_that_belong_to_nothing_are_passed_over") {
    const testing::ScratchDirectory scratch;
    const auto pixels_of = [&](const std::string& bytes) {
        std::ofstream(scratch.path() / "a.jpg", std::ios::binary) << bytes;
        return all_of(data::read_images(scratch.path() / "a.jpg", {.labels = false}))["image"];
    };
    for (const char* const name : {"420.jpg", "progressive.jpg", "grey.jpg"}) {
        CAPTURE(name);
        const std::string sound = storage::read_file(fixtures / "kinds" / "jpeg" / name);
        const at::Tensor pixels = pixels_of(sound);
        const std::size_t scan = sound.find("\xFF\xDA");
        const std::size_t end = sound.size() - 2;
        for (const std::string& noise :
             {std::string("x"), std::string(5, '\0'), std::string(700, 'n'),
              std::string("a\xFF\0b", 4), std::string("noise\xFF")}) {
            CAPTURE(noise.size());
            for (const std::size_t at : {std::size_t{20}, scan, end}) { // 20: behind JFIF's head
                CAPTURE(at);
                CHECK(pixels_of(std::string(sound).insert(at, noise)).equal(pixels));
            }
            CHECK(pixels_of(std::string(sound).insert(end, noise).insert(scan, "y")).equal(pixels));
            CHECK(pixels_of(sound + noise).equal(pixels)); // behind the end nobody looks
            // Cut off all the same.
            std::ofstream(scratch.path() / "a.jpg", std::ios::binary)
                << std::string(sound).insert(scan, noise).substr(0, end - 40);
            CHECK(contains(error_of(data::read_images(scratch.path() / "a.jpg", {.labels = false})),
                           "[RT-D80]"));
        }
    }
}

TEST_CASE("Images.flipped_bytes_are_errors_or_pixels") {
    const auto outcome_of = [](const auto& read) {
        try {
            std::vector<std::uint8_t> pixels;
            read(pixels);
            return std::pair(false, pixels);
        } catch (const format::ImageError&) {
            return std::pair(true, std::vector<std::uint8_t>{});
        }
    };
    const auto decode = [](auto image, std::vector<std::uint8_t>& pixels) {
        if (image.size().pixels() < 1 << 16) {
            pixels.resize(static_cast<std::size_t>(image.size().pixels()) * 3);
            image.decode(image.size(), data::ImageMode::rgb, pixels.data());
        }
    };
    std::string png = storage::read_file(fixtures / "kinds" / "png" / "palette.png");
    for (std::size_t at = 0; at < png.size(); ++at) {
        CAPTURE(at);
        png[at] = static_cast<char>(png[at] ^ 0x10);
        CHECK(outcome_of([&](auto& pixels) { decode(format::PngImage(png), pixels); }).first);
        png[at] = static_cast<char>(png[at] ^ 0x10);
    }
    std::string jpeg = storage::read_file(fixtures / "kinds" / "jpeg" / "420.jpg");
    int noticed = 0; // it has no checksums
    for (std::size_t at = 0; at < jpeg.size(); ++at) {
        jpeg[at] = static_cast<char>(jpeg[at] ^ 0x10);
        noticed += outcome_of([&](auto& pixels) { decode(format::JpegImage(jpeg), pixels); }).first
                       ? 1
                       : 0;
        jpeg[at] = static_cast<char>(jpeg[at] ^ 0x10);
    }
    CHECK(noticed > 50);
}

TEST_CASE("Images.the_good_one_before_stands_in_for_a_bad_one") {
    const testing::ScratchDirectory scratch;
    const fs::path mixed = scratch.path() / "mixed";
    const fs::path kinds = fixtures / "kinds" / "png";
    put(kinds / "rgb.png", mixed / "1.png");
    std::ofstream(mixed / "0.png") << "bad";
    std::ofstream(mixed / "2.png") << "";
    put(fixtures / "large" / "photo.png", mixed / "3.png"); // of another size
    put(kinds / "palette.png", mixed / "4.png");
    const auto read = [&](std::int64_t max_errors) {
        return data::read_images(mixed, {.labels = false,
                                         .include_paths = true,
                                         .on_error = data::OnError::skip,
                                         .max_errors = max_errors});
    };
    const auto batch = all_of(read(3));
    CHECK(paths_of(batch, mixed) == Texts{"1.png", "1.png", "1.png", "1.png", "4.png"});
    CHECK(batch["image"][3].equal(expected().at("png/rgb.png")));
    // The same rows in another order, and by themselves.
    const auto one = read(3).rows(at::tensor({4, 3}, at::kLong));
    CHECK(paths_of(one, mixed) == Texts{"4.png", "1.png"});
    CHECK(contains(error_of(read(2)), "[RT-D34]"));
    CHECK(contains(
        error_of(data::read_images({(mixed / "0.png").string(), (mixed / "2.png").string()},
                                   {.labels = false, .on_error = data::OnError::skip})),
        "[RT-D34]"));
}

TEST_CASE("Images.a_file_that_changes_is_noticed") {
    const testing::ScratchDirectory scratch;
    put(fixtures / "large" / "photo.png", scratch.path() / "of" / "a.png");
    const auto images = data::read_images(scratch.path(), {.on_error = data::OnError::skip});
    CHECK(images.size() == 1);
    std::ofstream(scratch.path() / "of" / "a.png", std::ios::app) << "more";
    CHECK(contains(error_of(images), "[RT-D29]"));
}

TEST_CASE("Images.of_a_service_are_read_whole") {
    /// Holds one image under many names, and counts what is asked of it.
    struct Memory {
        std::string file;
        std::shared_ptr<int> reads = std::make_shared<int>(0);
        std::vector<storage::Entry> list(const std::string& path) const {
            if (path == "team") {
                return {{.name = "cat", .is_directory = true},
                        {.name = "dog", .is_directory = true}};
            }
            return {{.name = "1.png", .size = file.size()}, {.name = "2.png", .size = file.size()}};
        }
        std::string read(const std::string&) const {
            *reads += 1;
            return file;
        }
        void write(const std::string&, std::string_view) {}
        void upload(const fs::path&, const std::string&) {}
        void download(const std::string&, const fs::path&) {
            throw StorageError("RT-S4", "one file by itself");
        }
        void remove(const std::string&) {}
        bool exists(const std::string&) { return true; }
        std::optional<storage::Entry> look_at(const std::string& path) const {
            return storage::Entry{.name = path, .is_directory = true};
        }
    };
    const Memory memory{storage::read_file(fixtures / "kinds" / "png" / "rgb.png")};
    storage::register_scheme("images", [=](const storage::Uri& uri, const auto&) {
        return storage::Location{storage::AnyFilesystem(memory, "images"),
                                 uri.authority + uri.path};
    });
    const auto images = data::read_images("images://team/", {.size = {29, 37}});
    CHECK(images.size() == 4);
    CHECK(*memory.reads == 0);
    const auto batch = all_of(images);
    CHECK(numbers_in(batch["label"]) == std::vector<std::int64_t>{0, 0, 1, 1});
    CHECK(batch["image"][2].equal(expected().at("png/rgb.png")));
    CHECK(*memory.reads == 4);
}

TEST_CASE("Images.each_is_read_once_on_any_number_of_ranks_and_threads") {
    const testing::ScratchDirectory scratch;
    write_classes(scratch.path(), 3, 60);
    const auto images = data::read_images(scratch.path(), {.include_paths = true});
    const auto check = [&]<class D>(D /*policy*/) {
        for (const int ranks : {1, 2, 3}) {
            Texts all;
            for (int rank = 0; rank < ranks; ++rank) {
                const Texts rows = epoch_of<D>(images, rank, ranks, {.size = 4});
                CHECK(rows == epoch_of<D>(images, rank, ranks, {.size = 4, .threads = 3}));
                all.insert(all.end(), rows.begin(), rows.end());
            }
            CHECK_FALSE(std::ranges::is_sorted(all));
            std::ranges::sort(all);
            CHECK(all.size() == 60);
            CHECK(std::ranges::unique(all).empty());
        }
    };
    check(data::Permuted{});
    check(data::Streaming{});
}

namespace {

/// Where a loop is behind its next batch, which began at `from`. With `stages`, over what some make
/// of the images.
data::Position next_batch(const fs::path& path, const data::Position& from, bool stages) {
    data::Dataset images = data::read_images(path.string(), {.size = {8, 8}});
    if (stages) {
        images = images.map_batches([](data::Batch batch) { return batch; })
                     .zip(data::from_tensors({{"x", at::arange(images.size())}}))
                     .union_with({data::from_tensors({{"x", at::zeros({0}, at::kLong)}})});
    }
    const auto position = std::make_shared<data::Position>(from);
    data::Batches batches({.dataset = images, .policy = data::Permuted{}}, {.size = 4}, position);
    const auto first = batches.begin();
    data::Position reached = *position;
    reached.iterating = false;
    return reached;
}

} // namespace

TEST_CASE("Images.a_checkpoint_notices_other_files") {
    for (const bool stages : {false, true}) {
        CAPTURE(stages);
        const testing::ScratchDirectory scratch;
        const testing::ScratchDirectory elsewhere;
        write_classes(scratch.path(), 3, 60);
        const data::Position saved = next_batch(scratch.path(), {}, stages);
        CHECK(saved.samples == 4);
        CHECK(saved.content != 0);
        fs::copy(scratch.path(), elsewhere.path(), fs::copy_options::recursive);
        CHECK(next_batch(elsewhere.path(), saved, stages).samples == 8); // a copy is the same
        fs::rename(elsewhere.path() / "class-0" / "0.png", elsewhere.path() / "class-0" / "x.png");
        CHECK_THROWS_WITH_AS(static_cast<void>(next_batch(elsewhere.path(), saved, stages)),
                             doctest::Contains("[RT-D21]"), DataError);
    }
}

TEST_CASE("Images.are_decoded_by_several_threads_at_a_time") {
    std::vector<std::jthread> threads;
    std::array<at::Tensor, 4> read;
    const auto images =
        data::read_images({(fixtures / "kinds").string(), (fixtures / "large").string()},
                          {.size = {40, 40}, .labels = false, .bits = 16});
    for (auto& result : read) {
        threads.emplace_back([&] {
            for (int i = 0; i < 5; ++i) {
                result = all_of(images)["image"];
            }
        });
    }
    threads.clear();
    for (const auto& result : read) {
        CHECK(result.equal(all_of(images)["image"]));
    }
}

TEST_CASE("Images.only_batches_are_in_memory") {
    const testing::ScratchDirectory scratch;
    write_classes(scratch.path(), 2, 480);
    constexpr std::int64_t side = 512;
    const auto images = data::read_images(scratch.path(), {.size = {side, side}});
    const data::Batches batches({.dataset = images, .policy = data::Streaming{}},
                                {.size = 4, .shuffle = true}, std::make_shared<data::Position>());
    static_cast<void>(images.take(4));
    forget_peak_memory();
    const std::int64_t before = peak_memory();
    std::int64_t rows = 0;
    for (const auto& batch : batches) {
        rows += batch.size();
    }
    CHECK(rows == 480);
    CHECK(peak_memory() - before < rows * 3 * side * side / 4);
}

} // namespace images_test
