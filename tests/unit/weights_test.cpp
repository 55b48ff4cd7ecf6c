// SPDX-License-Identifier: Apache-2.0
#include "../support.hpp"

#include <doctest/doctest.h>

#include <sys/stat.h>

using namespace rtrain;
using test::code_of;
namespace safetensors = checkpoint::safetensors;

namespace {

/// Remembers what was written, and from where.
struct Recorder {
    std::string bytes;
    std::vector<const void*> places;
    void write(const void* data, std::size_t size) {
        bytes.append(static_cast<const char*>(data), size);
        places.push_back(data);
    }
};

} // namespace

TEST_CASE("Safetensors.tensors_are_written_from_where_they_are") {
    const auto big = torch::randn({1000, 100});
    const auto flags = torch::ones({3}, torch::kBool);
    const auto wide = torch::randn({5}, torch::kDouble);
    Recorder sink;
    safetensors::write(sink, {{"a.flags", flags}, {"big", big}, {"view", big.t()}, {"wide", wide}},
                       {{"format", "pt"}});
    const auto direct = [&](const torch::Tensor& tensor) {
        return std::count(sink.places.begin(), sink.places.end(), tensor.const_data_ptr());
    };
    CHECK(sink.places.size() == 5);
    CHECK(direct(big) == 1);
    CHECK(direct(flags) == 1);
    CHECK(direct(wide) == 1);

    const auto header = checkpoint::parse_safetensors_header(sink.bytes);
    CHECK(header.data_begin % 64 == 0);
    CHECK(header.metadata.at("format") == "pt");
    for (const auto& info : header.tensors) {
        CHECK(info.begin % safetensors::element_type(info.dtype).second == 0);
    }
    const test::Directory directory("safetensors-sink");
    test::write(directory.path() / "t", sink.bytes);
    const auto read = safetensors::read(directory.path() / "t");
    CHECK(read.at("view").equal(big.t()));
    CHECK(read.at("wide").equal(wide));
}

TEST_CASE("Safetensors.conjugate_and_negative_views_are_written_as_they_read") {
    const test::Directory directory("safetensors-views");
    const auto tensor = torch::view_as_complex(torch::randn({4, 2}));
    safetensors::write(directory.path() / "t", {{"conj", tensor.conj()},
                                                {"imag", torch::imag(tensor.conj()).contiguous()},
                                                {"neg", torch::imag(tensor.conj())}});
    const auto read = safetensors::read(directory.path() / "t");
    CHECK(read.at("conj").equal(tensor.conj().resolve_conj()));
    CHECK(read.at("neg").equal(-torch::imag(tensor)));
}

TEST_CASE("Safetensors.what_the_format_cannot_hold_is_an_error") {
    const test::Directory directory("safetensors-refused");
    const auto refused = [&](const std::string& name, const torch::Tensor& tensor) {
        return code_of([&] { safetensors::write(directory.path() / "t", {{name, tensor}}); });
    };
    CHECK(refused("a", torch::Tensor()) == "RT-K6");
    CHECK(refused("a", torch::eye(3).to_sparse()) == "RT-K6");
    CHECK(refused("a", torch::empty({3}, torch::kMeta)) == "RT-K6");
    CHECK(refused("a", torch::zeros({3}, torch::kComplexDouble)) == "RT-K6");
    CHECK(refused("a\nb", torch::zeros({3})) == "RT-K20");
    CHECK(refused("__metadata__", torch::zeros({3})) == "RT-K20");
    CHECK(refused("a", torch::zeros({1}).expand(
                           {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})) == "RT-K20");
}

TEST_CASE("Safetensors.loaded_tensors_are_private") {
    const test::Directory directory("safetensors-private");
    const auto file = directory.path() / "t";
    safetensors::write(file, {{"a", torch::zeros({8})}});
    const std::string before = test::read(file);
    auto first = safetensors::read(file).at("a");
    const auto second = safetensors::read(file).at("a");
    first.fill_(7);
    CHECK(second.equal(torch::zeros({8})));
    std::filesystem::remove(file);
    CHECK(first.equal(torch::full({8}, 7.0F)));
    test::write(file, before);
    CHECK(safetensors::read(file).at("a").equal(torch::zeros({8})));
}

TEST_CASE("Safetensors.unaligned_data_is_copied") {
    const test::Directory directory("safetensors-unaligned");
    const auto values = torch::randn({3});
    for (std::size_t shift = 1; shift < 8; ++shift) {
        std::string header = R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
        header.resize(64 - 8 + shift, ' ');
        const std::uint64_t size = header.size();
        test::write(directory.path() / "t",
                    std::string(reinterpret_cast<const char*>(&size), 8) + header +
                        std::string(static_cast<const char*>(values.const_data_ptr()), 12));
        CHECK(safetensors::read(directory.path() / "t").at("a").equal(values));
    }
}

TEST_CASE("Safetensors.only_ordinary_files_are_read") {
    const test::Directory directory("safetensors-kinds");
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(code_of([&] { (void)safetensors::read(pipe); }) == "RT-K2");
    CHECK(code_of([&] { (void)safetensors::read(directory.path()); }) == "RT-K2");
    CHECK(code_of([&] { (void)safetensors::read(directory.path() / "absent"); }) == "RT-S3");
    test::write(directory.path() / "empty", "");
    CHECK(code_of([&] { (void)safetensors::read(directory.path() / "empty"); }) == "RT-K2");
}
