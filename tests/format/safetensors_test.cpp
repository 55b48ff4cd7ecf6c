// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/format/safetensors.hpp>

#include <doctest/doctest.h>

#include <torch/torch.h>

#include <cstdint>
#include <string>

using namespace rtrain;
using test::code_of;

TEST_CASE("Safetensors.every_type_and_shape_comes_back") {
    const test::Directory directory("safetensors");
    const auto file = directory.path() / "t.safetensors";
    checkpoint::safetensors::Tensors tensors;
    for (const auto& [type, name] : checkpoint::safetensors::types) {
        tensors.emplace("tensor." + std::string(name),
                        torch::randint(0, 2, {3, 5}).to(torch::TensorOptions(type)));
    }
    tensors.emplace("scalar", torch::tensor(3.5));
    tensors.emplace("empty", torch::empty({0, 4}));
    tensors.emplace("strided", torch::arange(12).view({3, 4}).t());
    checkpoint::safetensors::write(file, tensors);
    const auto loaded = checkpoint::safetensors::read(file);
    REQUIRE(loaded.size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
        CAPTURE(name);
        CHECK((loaded.at(name).scalar_type() == tensor.scalar_type()));
        CHECK(loaded.at(name).sizes() == tensor.sizes());
        CHECK(loaded.at(name).to(torch::kFloat).equal(tensor.to(torch::kFloat)));
    }
    CHECK(
        code_of([&] {
            checkpoint::safetensors::write(file, {{"c", torch::zeros({2}, torch::kComplexDouble)}});
        }) == "RT-K6");
}

TEST_CASE("Safetensors.damaged_files_are_errors") {
    const test::Directory directory("safetensors-damaged");
    const auto file = directory.path() / "t.safetensors";
    checkpoint::safetensors::write(file, {{"a", torch::arange(6)}, {"b", torch::ones({2, 2})}});
    const std::string good = test::read(file);
    for (std::size_t length = 0; length < good.size(); ++length) {
        CAPTURE(length);
        test::write(file, good.substr(0, length));
        CHECK(code_of([&] { (void)checkpoint::safetensors::read(file); }) == "RT-K2");
    }
    const auto with_header = [&](const std::string& header) {
        const std::uint64_t size = header.size();
        test::write(file, std::string(reinterpret_cast<const char*>(&size), 8) + header +
                              std::string(4, 'x'));
        return code_of([&] { (void)checkpoint::safetensors::read(file); });
    };
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})").empty());
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,5]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[4,0]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[-4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[99,103]}})") == "RT-K2");
    CHECK(with_header(
              R"({"a":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})") ==
          "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"shape":[4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"([1,2])") == "RT-K2");
}
