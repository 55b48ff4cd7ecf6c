// SPDX-License-Identifier: Apache-2.0
// Tensors as images of reports: their pixels come back, and what is no image is named.
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/base64.hpp>
#include <rtrain/format/png.hpp>
#include <rtrain/track/lines/image.hpp>
#include <rtrain/track/lines/reported_image.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <boost/json/value.hpp>

#include <cstdint>
#include <limits>
#include <string>

using namespace rtrain;

namespace {

/// The pixels of what track::image() has made, [height, width, channels].
at::Tensor read(const std::string& metric) {
    const auto image = track::image_in(boost::json::value(metric));
    REQUIRE(image);
    const bool is_grey = image->channels == 1;
    at::Tensor pixels = at::empty({image->height, image->width, is_grey ? 1 : 3}, at::kByte);
    format::PngImage png(image->file);
    png.decode(png.size(), is_grey ? format::ImageMode::grey : format::ImageMode::rgb,
               pixels.mutable_data_ptr<std::uint8_t>());
    return pixels;
}

std::string error_of(const at::Tensor& pixels) {
    try {
        static_cast<void>(track::image(pixels));
    } catch (const Error& error) {
        CHECK(error.code() == "RT-V81");
        return error.message();
    }
    return "no error";
}

} // namespace

TEST_CASE("ReportImage.bytes_come_back") {
    at::Tensor pixels = at::arange(3 * 40 * 70, at::kLong).mul(11).remainder(256).to(at::kByte);
    pixels = pixels.reshape({3, 40, 70});
    CHECK(at::equal(read(track::image(pixels)), pixels.permute({1, 2, 0})));
    CHECK(at::equal(read(track::image(pixels[0])), pixels[0].unsqueeze(-1)));
    CHECK(at::equal(read(track::image(pixels.slice(0, 1, 2))), pixels[1].unsqueeze(-1)));
    const at::Tensor turned = pixels.transpose(1, 2); // not contiguous
    CHECK(at::equal(read(track::image(turned)), turned.permute({1, 2, 0})));
    const at::Tensor large = at::zeros({track::longest_image, 1}, at::kByte);
    CHECK(at::equal(read(track::image(large)), large.unsqueeze(-1)));
}

TEST_CASE("ReportImage.numbers_from_0_to_1_become_bytes") {
    const double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor numbers =
        at::tensor({0.0, 1.0, 0.5, 0.2, -3.0, 7.0, std::numeric_limits<double>::quiet_NaN(),
                    infinity, -infinity});
    const at::Tensor expected = at::tensor({0, 255, 128, 51, 0, 255, 0, 255, 0}, at::kByte);
    for (const auto type : {at::kDouble, at::kFloat}) {
        const at::Tensor pixels = numbers.to(type).reshape({3, 3}).requires_grad_();
        CHECK(at::equal(read(track::image(pixels)), expected.reshape({3, 3, 1})));
    }
    CHECK(at::equal(read(track::image(at::ones({2, 2}, at::kBFloat16))),
                    at::full({2, 2, 1}, 255, at::kByte)));
}

TEST_CASE("ReportImage.what_is_no_image_is_named") {
    CHECK(error_of(at::zeros({2, 5, 6})).find("shape [2, 5, 6] and type Float; expected [height") !=
          std::string::npos);
    CHECK(error_of(at::zeros({5, 6}, at::kLong)).find("type Long") != std::string::npos);
    CHECK(error_of(at::zeros({1, 3, 5, 6})).find("[1, 3, 5, 6]") != std::string::npos);
    CHECK(error_of(at::zeros({0, 6})).find("[0, 6]") != std::string::npos);
    CHECK(error_of(at::zeros({track::longest_image + 1, 1})).find("at most 4096") !=
          std::string::npos);
    CHECK(error_of({}) == "an image is an undefined tensor");
}

TEST_CASE("ReportImage.texts_that_are_no_image_stay_texts") {
    const std::string begin(track::image_begin);
    const std::string sound = track::image(at::zeros({2, 2}));
    CHECK(track::is_image(boost::json::value(sound)));
    CHECK(!track::is_image(boost::json::value("data:image/jpeg;base64,")));
    CHECK(!track::image_in(boost::json::value(1)));
    for (const std::string& text : {begin, begin + "AAAA", begin + "a", begin + sound, sound + "=",
                                    begin + rtrain::detail::to_base64(std::string(100, 'x'))}) {
        CHECK_MESSAGE(!track::image_in(boost::json::value(text)), text);
    }
}

TEST_CASE("Base64.comes_back") {
    std::string bytes;
    for (int i = 0; i < 300; ++i) {
        CHECK(rtrain::detail::from_base64(rtrain::detail::to_base64(bytes)) == bytes);
        bytes += static_cast<char>(i * 31);
    }
    CHECK(rtrain::detail::to_base64("Man") == "TWFu");
    CHECK(rtrain::detail::to_base64("Ma") == "TWE=");
    CHECK(rtrain::detail::to_base64("M") == "TQ==");
    for (const char* const text : {"TWFu=", "TQ=", "TR==", "TWF=", "T===", "TW Fu", "TWF\xff"}) {
        CHECK_MESSAGE(!rtrain::detail::from_base64(text), text);
    }
}
