// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/data/readers/idx.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>
#include <zlib.h>

using namespace rtrain;
using test::code_of;

TEST_CASE("Dataset.fashion_mnist_is_complete") {
    const auto train = data::fashion_mnist(test::fashion_mnist_files, data::Split::train);
    const auto test_rows = data::fashion_mnist(test::fashion_mnist_files, data::Split::test);
    CHECK(train.size() == 60000);
    CHECK(test_rows.size() == 10000);
    const auto first = train.rows(torch::arange(4));
    CHECK(first["image"].sizes() == torch::IntArrayRef{4, 1, 28, 28});
    CHECK(first["image"].min().item<float>() == 0);
    CHECK(first["image"].max().item<float>() == 1);
    CHECK(first["label"].equal(torch::tensor({9, 0, 0, 3}, torch::kLong)));
}

namespace {

void write_packed(const std::filesystem::path& path, const std::string& text) {
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
}

} // namespace

TEST_CASE("Idx.bad_files_are_errors") {
    const test::Directory directory("idx");
    const auto images = directory.path() / "train-images-idx3-ubyte";
    const auto labels = directory.path() / "train-labels-idx1-ubyte";
    const std::string good_images =
        std::string("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2", 16) + "abcdefgh";
    const std::string good_labels = std::string("\0\0\x08\x01\0\0\0\2", 8) + "\1\2";
    const auto open = [&] {
        return data::fashion_mnist(directory.path(), data::Split::train).rows(torch::arange(2));
    };
    CHECK(code_of(open) == "RT-D3");
    test::write(images, good_images);
    test::write(labels, good_labels);
    CHECK(open()["label"].equal(torch::tensor({1, 2}, torch::kLong)));
    CHECK(open()["image"][1][0][1][1].item<float>() == doctest::Approx('h' / 255.0));

    test::write(images, good_images.substr(0, 20));
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images.substr(0, 9));
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images + "x");
    CHECK(code_of(open) == "RT-D5");
    test::write(images, "\0\0\x0d\x03" + good_images.substr(4));
    CHECK(code_of(open) == "RT-D4");
    test::write(images, good_labels);
    CHECK(code_of(open) == "RT-D4");
    test::write(images, "");
    CHECK(code_of(open) == "RT-D4");
    // A header that asks for 2^96 bytes is refused before memory is.
    test::write(images, std::string("\0\0\x08\x03", 4) + std::string(12, '\xff') + "abc");
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images);
    test::write(labels, std::string("\0\0\x08\x01\0\0\0\1", 8) + "\1");
    CHECK(code_of(open) == "RT-D6");

    std::filesystem::remove(images);
    test::write(labels, good_labels);
    const auto packed = directory.path() / "train-images-idx3-ubyte.gz";
    write_packed(packed, good_images);
    CHECK(open()["image"].sizes() == torch::IntArrayRef{2, 1, 2, 2});
    const std::string bytes = test::read(packed);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CAPTURE(length);
        test::write(packed, bytes.substr(0, length));
        const std::string code = code_of(open);
        CHECK((code == "RT-D4" || code == "RT-D5"));
    }
    // gzip in two members: the last trailer does not describe the first
    write_packed(packed, good_images.substr(0, 18));
    const std::string head = test::read(packed);
    write_packed(packed, good_images.substr(18));
    test::write(packed, head + test::read(packed));
    CHECK(open()["image"].sizes() == torch::IntArrayRef{2, 1, 2, 2});
}
