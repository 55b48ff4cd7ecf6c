// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/format/checksummed_json.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>

using namespace rtrain;
using test::code_of;

TEST_CASE("Manifest.contradictions_are_errors") {
    checkpoint::Manifest good{
        .index = 3,
        .ranks = 2,
        .metrics = {{"a", 1}},
        .contents = {{{"x", 5, {1}}, {"y", 1 << 21, {1, 2}}},
                     {{"t", {"F32", {4, 2}, false, {{"y", 3, 5}, {"x", 0, 3}}}}}}};
    const auto code = [](const checkpoint::Manifest& manifest) {
        return code_of([&] { (void)checkpoint::parse_manifest(manifest_text(manifest)); });
    };
    CHECK(code(good).empty());
    const auto parsed = checkpoint::parse_manifest(manifest_text(good));
    CHECK(parsed.index == 3);
    CHECK(parsed.ranks == 2);
    CHECK(parsed.metrics == good.metrics);
    CHECK((parsed.contents.files == good.contents.files));
    CHECK(parsed.contents.tensors.at("t").pieces[0].file == "x"); // in order
    const auto with = [&](auto change) {
        checkpoint::Manifest bad = good;
        change(bad.contents.files, bad.contents.tensors.at("t"));
        return code(bad);
    };
    CHECK(with([](auto& files, auto&) { files[0].name = "../x"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].name = "/etc/passwd"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].name = "y"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].sums.clear(); }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[1].size = ~std::uint64_t{0}; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].file = "z"; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].begin = 2; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].count = 4; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].count = -1; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces.clear(); }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.shape = {-4, -2}; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) {
              tensor.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
          }) == "RT-K2");
    CHECK(code_of([] { (void)checkpoint::parse_manifest(R"({"format":"other"})"); }) == "RT-K1");
    CHECK(code_of([] {
              (void)checkpoint::parse_manifest(
                  checkpoint::with_checksum({{"format", "rtrain-checkpoint"}, {"version", 3}}));
          }) == "RT-K1");
}

TEST_CASE("Contents.of_ranks_make_a_whole_or_an_error") {
    using checkpoint::Contents;
    const auto merged = [](Contents a, const Contents& b) {
        return code_of([&] { checkpoint::merge(a, b); });
    };
    const Contents first{{{"a", 0, {}}}, {{"t", {"F32", {4}, false, {{"a", 0, 2}}}}}};
    CHECK(merged(first, {{{"b", 0, {}}}, {{"t", {"F32", {4}, false, {{"b", 2, 2}}}}}}).empty());
    CHECK(merged(first, {{{"a", 0, {}}}, {}}) == "RT-K5");
    CHECK(merged(first, {{}, {{"t", {"F64", {4}, false, {{"b", 2, 2}}}}}}) == "RT-K10");
    CHECK(merged(first, {{}, {{"t", {"F32", {5}, false, {{"b", 2, 2}}}}}}) == "RT-K10");
}
