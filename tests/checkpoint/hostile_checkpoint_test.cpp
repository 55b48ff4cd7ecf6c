// SPDX-License-Identifier: Apache-2.0
// Checkpoints that others have written: whatever is in them, verifying, loading and merging agree,
// and end in an rtrain::Error.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/checkpoint/tool.hpp>
#include <rtrain/storage/local.hpp>

#include <torch/torch.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace hostile_checkpoint_test {

using namespace rtrain;
using test::code_of;
using test::message_of;

namespace {

/// A checkpoint of two files of tensors, one tensor in pieces, one empty, and values.
checkpoint::Manifest write_checkpoint(const std::filesystem::path& directory) {
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory / "deep");
    checkpoint::Snapshot first;
    first.tensors.emplace("weight", torch::arange(6.0).view({2, 3}));
    first.tensors.emplace("empty", torch::zeros({0, 4}));
    first.pieces["table"] = {{4, 2}, {{0, torch::ones({1, 2})}}, true};
    checkpoint::Snapshot second;
    second.pieces["table"] = {{4, 2}, {{2, torch::ones({3, 2})}}, true};
    first.values = {{"epoch", 3}, {"nested", {{"x", 0.5}}}};
    auto contents = checkpoint::write_tensors(first, directory, "a.safetensors");
    merge(contents, checkpoint::write_tensors(second, directory, "deep/b.safetensors"));
    merge(contents, checkpoint::write_values(first, directory));
    const checkpoint::Manifest manifest{.metrics = {{"training_iteration", 1}},
                                        .contents = std::move(contents)};
    test::write(directory / "manifest.json", manifest_text(manifest));
    return manifest;
}

/// The codes of verify, load, and merge.
struct Codes {
    std::string verified, loaded, merged;
};
Codes codes_of(const std::filesystem::path& directory) {
    return {code_of([&] { (void)checkpoint::verify(directory); }),
            code_of([&] { (void)checkpoint::read_state(directory); }), code_of([&] {
                checkpoint::merge_into_one_file(Checkpoint(directory),
                                                directory.parent_path() / "merged.safetensors");
            })};
}

/// Replaces a file, and has the manifest list it as it is now.
void replace(const std::filesystem::path& directory, checkpoint::Manifest manifest,
             const std::string& name, const std::string& content) {
    test::write(directory / name, content);
    for (auto& file : manifest.contents.files) {
        file = file.name == name ? checkpoint::record_of(directory, name) : file;
    }
    test::write(directory / "manifest.json", manifest_text(manifest));
}

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

} // namespace

TEST_CASE("Hostile.what_does_not_load_does_not_verify") {
    const test::Directory scratch("hostile");
    const auto directory = scratch.path() / "checkpoint";
    const auto good = write_checkpoint(directory);
    CHECK(codes_of(directory).verified.empty());
    CHECK(codes_of(directory).loaded.empty());
    CHECK(codes_of(directory).merged.empty());

    const auto refused = [&](const char* what) {
        CAPTURE(what);
        const auto codes = codes_of(directory);
        CHECK(codes.verified == "RT-K2");
        CHECK(codes.loaded == "RT-K2");
        CHECK(codes.merged == "RT-K2");
    };
    const auto with = [&](const char* what, const auto& change) {
        auto manifest = write_checkpoint(directory);
        change(manifest.contents);
        test::write(directory / "manifest.json", manifest_text(manifest));
        refused(what);
    };
    with("no pieces", [](auto& contents) { contents.tensors.at("empty").pieces.clear(); });
    with("rows of a scalar", [](auto& contents) {
        contents.tensors["scalar"] = {"F32", {}, true, {{"a.safetensors", 0, 1}}};
    });
    with("another type", [](auto& contents) { contents.tensors.at("weight").type = "I32"; });
    with("unknown type", [](auto& contents) { contents.tensors.at("empty").type = "X"; });
    with("fewer elements", [](auto& contents) {
        contents.tensors.at("weight").shape = {2};
        contents.tensors.at("weight").pieces[0].count = 2;
    });
    with("not in its file", [](auto& contents) {
        contents.tensors["other"] = {"F32", {6}, false, {{"a.safetensors", 0, 6}}};
    });
    with("one file twice", [](auto& contents) {
        contents.tensors.at("weight").shape = {4, 3};
        contents.tensors.at("weight").pieces.push_back({"a.safetensors", 6, 6});
    });
    with("impossible strides", [](auto& contents) {
        contents.tensors.at("empty").shape = {std::int64_t{1} << 40, 0, std::int64_t{1} << 40};
    });
    with("65 dimensions", [](auto& contents) {
        contents.tensors.at("weight").shape = std::vector<std::int64_t>(65, 1);
        contents.tensors.at("weight").pieces[0].count = 1;
    });
    with("a name that controls terminals",
         [](auto& contents) { contents.tensors["\x1b[2J"] = contents.tensors.at("weight"); });

    for (const std::string& values :
         {std::string("[]"), std::string("{"), std::string("null"), std::string(),
          std::string("{\"epoch\":3"), std::string("{} {}"), nested(100'000),
          "{\"a\":" + nested(100'000) + "}", std::string(100'000, '[')}) {
        replace(directory, write_checkpoint(directory), "state.json", values);
        refused(values.substr(0, 20).c_str());
    }
    for (const std::string& tensors :
         {std::string(), std::string("\x08\0\0\0\0\0\0\0{}      ", 16), std::string(40, '\xff')}) {
        replace(directory, write_checkpoint(directory), "a.safetensors", tensors);
        refused(tensors.substr(0, 9).c_str());
    }
    auto wide = write_checkpoint(directory); // has more than 2^62 elements but for the 0
    wide.contents.tensors.at("empty") = {"U8", {0}, false, {{"a.safetensors", 0, 0}}};
    std::string header = R"({"empty":{"dtype":"U8","shape":[5000000000000000000,0],)"
                         R"("data_offsets":[0,0]}})";
    header.resize(80, ' ');
    replace(directory, wide, "a.safetensors", std::string("\x50\0\0\0\0\0\0\0", 8) + header);
    refused("a shape of a file");
}

TEST_CASE("Hostile.links_and_pipes_are_refused" * doctest::timeout(60)) {
    const test::Directory scratch("links");
    const auto directory = scratch.path() / "checkpoint";
    const auto outside = scratch.path() / "outside";
    const auto refused = [&](const std::string& name, const std::string& code) {
        CAPTURE(name);
        CHECK(codes_of(directory).verified == code);
        CHECK(codes_of(directory).loaded == code);
        CHECK(codes_of(directory).merged == code);
        (void)write_checkpoint(directory);
    };
    (void)write_checkpoint(directory);
    for (const std::string name : {"a.safetensors", "state.json", "manifest.json", "deep"}) {
        std::filesystem::rename(directory / name, outside);
        std::filesystem::create_symlink(outside, directory / name);
        CHECK(code_of([&] { (void)Checkpoint(directory).to_directory(scratch.path() / "copy"); }) ==
              "RT-K2");
        refused(name, "RT-K2");
        std::filesystem::remove_all(outside);
    }
    for (const std::string name : {"a.safetensors", "state.json", "manifest.json"}) {
        std::filesystem::remove(directory / name);
        REQUIRE(::mkfifo((directory / name).c_str(), 0600) == 0);
        refused(name, "RT-K2");
    }
    std::filesystem::create_symlink("/etc/hostname", directory / "more");
    CHECK(code_of([&] { (void)Checkpoint(directory).to_directory(scratch.path() / "copy"); }) ==
          "RT-K2");
}

TEST_CASE("Hostile.files_that_claim_any_size_are_not_read") {
    const test::Directory scratch("sparse");
    const auto directory = scratch.path() / "checkpoint";
    constexpr off_t huge = off_t{4} << 40;
    for (const std::string name : {"manifest.json", "state.json"}) {
        const auto manifest = write_checkpoint(directory);
        if (::truncate((directory / name).c_str(), huge) != 0) {
            MESSAGE("skipped: the file system has no sparse files of 4 TiB");
            return;
        }
        CAPTURE(name);
        CHECK(codes_of(directory).loaded == "RT-S4");
        const std::string why = message_of([&] { (void)checkpoint::read_state(directory); });
        CHECK(test::contains(why, "4398046511104 bytes, but expected at most 1073741824"));
        CHECK(!codes_of(directory).verified.empty());
        CHECK(!codes_of(directory).merged.empty());
        const auto listing =
            checkpoint::list_checkpoints({storage::Local{}, scratch.path().string()});
        CHECK(listing.damaged.size() == (name == "manifest.json" ? 1 : 0));
    }
}

TEST_CASE("Hostile.random_changes_are_found_or_harmless") {
    const test::Directory scratch("random");
    const auto directory = scratch.path() / "checkpoint";
    std::mt19937_64 random(31);
    const auto below = [&](std::size_t limit) { return random() % limit; };
    const std::vector<std::string> words{
        "0", "-1", "9223372036854775807", "[]", "{}", "null", "\"", "true", "1e308", ",", "]", "}"};
    const auto changed = [&](std::string text) {
        for (std::size_t count = 1 + below(3); count > 0 && !text.empty(); --count) {
            const std::size_t place = below(text.size());
            switch (below(4)) {
            case 0:
                text[place] = static_cast<char>(below(256));
                break;
            case 1:
                text.erase(place, 1 + below(8));
                break;
            case 2:
                text.insert(place, words[below(words.size())]);
                break;
            default: {
                const std::size_t digit = text.find_first_of("0123456789", place);
                if (digit != std::string::npos) {
                    const std::size_t end = text.find_first_not_of("0123456789", digit);
                    text.replace(digit, end == std::string::npos ? end : end - digit,
                                 words[below(3)]);
                }
            }
            }
        }
        return text;
    };
    int accepted = 0;
    for (int i = 0; i < 900; ++i) {
        const auto manifest = write_checkpoint(directory);
        if (i % 3 == 0) { // with the checksum that it needs
            const std::string text = manifest_text(manifest);
            const std::string open = changed(text.substr(0, text.rfind(checkpoint::seal_field)));
            test::write(directory / "manifest.json", open + std::string(checkpoint::seal_field) +
                                                         std::to_string(checkpoint::crc32c(open)) +
                                                         "}");
        } else {
            const std::string name = i % 3 == 1 ? "state.json" : "deep/b.safetensors";
            replace(directory, manifest, name, changed(test::read(directory / name)));
        }
        CAPTURE(i);
        const Codes codes = codes_of(directory); // throws what is not an rtrain::Error
        const bool is_state = codes.verified.empty() &&
                              checkpoint::internal::has_state(checkpoint::read_manifest(directory));
        CHECK((codes.verified.empty() ? codes.loaded == (is_state ? "" : "RT-K1")
                                      : !codes.merged.empty()));
        CHECK((codes.merged.empty() == (codes.verified.empty() && is_state)));
        accepted += codes.verified.empty() ? 1 : 0;
    }
    CHECK(accepted > 9); // else this would show nothing
}

TEST_CASE("Hostile.what_is_printed_does_not_control_the_terminal") {
    const test::Directory scratch("printed");
    const auto directory = scratch.path() / "checkpoint";
    auto manifest = write_checkpoint(directory);
    manifest.metrics = {{"a\x1b]0;title\x07", "b\xc2\x9b"
                                              "2J\xe2\x80\xae"}};
    manifest.contents.tensors.at("weight").type = "F32\x1b[31m\n";
    test::write(directory / "manifest.json", manifest_text(manifest));
    std::ostringstream out;
    checkpoint::list(Checkpoint(directory), out);
    for (const char* const control : {"\x1b", "\x07", "\xc2\x9b", "\xe2\x80\xae"}) {
        CHECK(!test::contains(out.str(), control));
    }
    CHECK(test::contains(out.str(), "\\u009b2J\\u202e"));
    CHECK(test::contains(out.str(), "F32\\x1b[31m"));
    const auto odd = scratch.path() / "odd\x1b[2J";
    CHECK(test::contains(message_of([&] { (void)checkpoint::verify(odd); }), "odd\\x1b[2J is no"));
}

TEST_CASE("Hostile.a_users_own_state_json_is_refused_when_reported") {
    const test::Directory directory("own-values");
    test::write(directory.path() / "state.json", "{\"mine\": 1}");
    CHECK(checkpoint::names_of_files(directory.path()).size() == 1);
    test::write(directory.path() / "state.json", "[1, 2]");
    CHECK(code_of([&] { (void)checkpoint::names_of_files(directory.path()); }) == "RT-K14");
}

} // namespace hostile_checkpoint_test
