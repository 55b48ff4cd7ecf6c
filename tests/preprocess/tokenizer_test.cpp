// SPDX-License-Identifier: Apache-2.0
// Text as ids, against PyPI's tokenizers: tests/fixtures/preprocess/make_tokenizers.py.
#include "support/thrown.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/chain.hpp>
#include <rtrain/preprocess/character_tokenizer.hpp>
#include <rtrain/preprocess/tokenizer.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/ATen.h>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

using namespace rtrain;
using namespace rtrain::preprocess;
using test::code_of;
using test::message_of;

namespace {

struct Directory {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("rtrain-tokenizer-" + std::to_string(::getpid()));
    Directory() { std::filesystem::create_directories(path); }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { std::filesystem::remove_all(path); }
};

using Ids = std::vector<std::int64_t>;

std::filesystem::path file(const std::string& name) {
    return std::filesystem::path(RTRAIN_TEST_DATA) / "preprocess" / (name + ".json");
}
boost::json::value read_json(const std::string& name) {
    return json::parse(storage::read_file(file(name)));
}

data::Ragged texts_of(const std::vector<std::string>& rows) {
    return rtrain::detail::Categories::as_text({rows.begin(), rows.end()});
}
data::Batch batch_of(const std::vector<std::string>& rows) {
    return {data::Batch::Columns{}, {{"text", texts_of(rows)}}};
}
Ids ids_of(const at::Tensor& row) {
    const at::Tensor ids = row.contiguous();
    return {ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + ids.numel()};
}

/// The code and message of the error that a changed tokenizer.json gives.
template <class Change>
std::string error_of(const Change& change) {
    auto value = read_json("byte_level");
    change(value.as_object());
    return message_of([&] {
        (void)rtrain::detail::parse_tokenizer(boost::json::serialize(value), "changed.json");
    });
}

} // namespace

TEST_CASE("Tokenizer.ids_equal_those_of_tokenizers") {
    const auto cases = read_json("tokenizers");
    const auto texts = boost::json::value_to<std::vector<std::string>>(cases.at("texts"));
    REQUIRE(texts.size() > 200);
    for (const char* const name : {"byte_level", "prefix_space"}) {
        CAPTURE(name);
        const Tokenizer tokenizer({"text"}, file(name), {"ids"});
        const auto expected = boost::json::value_to<std::vector<Ids>>(cases.at(name));
        for (std::size_t i = 0; i < texts.size(); ++i) {
            CAPTURE(texts[i]);
            const Ids ids = tokenizer.encode(texts[i]);
            CHECK((ids == expected[i]));
            if (std::string(name) == "byte_level") {
                CHECK(tokenizer.decode(ids) == texts[i]);
            }
        }
        const auto batch = tokenizer.transform(batch_of(texts));
        CHECK(batch.ragged("text").text(0) == texts[0]);
        CHECK((ids_of(batch.ragged("ids")[40]) == expected[40]));
        CHECK(batch.ragged("ids").size() == static_cast<std::int64_t>(texts.size()));
    }
}

TEST_CASE("Tokenizer.learns_what_tokenizers_learns") {
    const auto file = read_json("trained");
    const auto texts = boost::json::value_to<std::vector<std::string>>(file.at("texts"));
    const data::Dataset rows = data::lazy([&] {
        class Texts : public data::Dataset::BlockSource {
        public:
            explicit Texts(data::Batch all) : all_(std::move(all)) {}
            [[nodiscard]] std::vector<Block> blocks() const override { return {{all_.size()}}; }
            [[nodiscard]] data::Batch read(std::int64_t /*block*/) const override { return all_; }

        private:
            data::Batch all_;
        };
        return data::from_blocks(std::make_shared<Texts>(batch_of(texts)));
    });
    for (const auto& item : file.at("cases").as_array()) {
        const auto& given = item.at("options").as_object();
        BytePairOptions options{.vocab_size = given.at("vocab_size").to_number<std::int64_t>()};
        if (const auto* const least = given.if_contains("min_frequency")) {
            options.min_frequency = least->to_number<std::int64_t>();
        }
        if (const auto* const special = given.if_contains("special_tokens")) {
            options.special_tokens = boost::json::value_to<std::vector<std::string>>(*special);
        }
        options.add_prefix_space = given.contains("add_prefix_space");
        Tokenizer tokenizer({"text"}, options, {"ids"});
        CHECK(code_of([&] { (void)tokenizer.encode("a"); }) == "RT-D55");
        CHECK(code_of([&] { (void)tokenizer.size(); }) == "RT-D55");
        checkpoint::Snapshot before;
        StateWriter unfitted(before, "tokenizer");
        tokenizer.save(unfitted);
        tokenizer.fit(rows);
        tokenizer.fit(rows); // anew
        const Directory directory;
        tokenizer.write(directory.path / "tokenizer.json");
        CHECK((json::parse(storage::read_file(directory.path / "tokenizer.json")) ==
               item.at("file")));
        const auto ids = boost::json::value_to<std::vector<Ids>>(item.at("ids"));
        for (std::size_t i = 0; i < texts.size(); ++i) {
            CHECK((tokenizer.encode(texts[i]) == ids[i]));
        }
        Tokenizer read({"text"}, directory.path / "tokenizer.json");
        read.fit(rows); // which changes nothing
        CHECK((read.encode(texts[3]) == ids[3]));
        tokenizer.load(StateReader(before, "tokenizer"));
        CHECK(code_of([&] { (void)tokenizer.encode("a"); }) == "RT-D55");
    }
    CHECK(code_of([] { Tokenizer({"text"}, BytePairOptions{.vocab_size = 255}); }) == "RT-D59");
    CHECK(code_of([] {
              Tokenizer({"text"}, BytePairOptions{.special_tokens = {"a", "a"}});
          }) == "RT-D59");
    Tokenizer of_nothing({"text"}, BytePairOptions{});
    CHECK(code_of([&] { of_nothing.fit(rows.limit(0)); }) == "RT-D58");
}

TEST_CASE("Tokenizer.what_is_written_is_what_tokenizers_writes") {
    for (const char* const name : {"byte_level", "prefix_space"}) {
        const Tokenizer tokenizer({"text"}, file(name));
        const Directory directory;
        const auto copy = directory.path / "tokenizer.json";
        tokenizer.write(copy);
        CHECK((json::parse(storage::read_file(copy)) == read_json(name)));
        CHECK(tokenizer.size() == Tokenizer({"text"}, copy).size());
    }
    const Tokenizer tokenizer({"text"}, file("byte_level"));
    checkpoint::Snapshot snapshot;
    StateWriter out(snapshot, "tokenizer");
    tokenizer.save(out);
    Tokenizer other({"text"}, file("prefix_space"));
    other.load(StateReader(snapshot, "tokenizer"));
    CHECK((other.encode("hello") == tokenizer.encode("hello")));
}

TEST_CASE("Tokenizer.reads_older_files_and_says_what_it_cannot_read") {
    // Merges as strings, and no type: before tokenizers 0.20, as GPT-2's own file.
    auto old = read_json("byte_level");
    auto& model = old.at("model").as_object();
    model.erase("type");
    model["unk_token"] = "";
    for (auto& merge : model.at("merges").as_array()) {
        merge = std::string(merge.at(0).as_string()) + ' ' + std::string(merge.at(1).as_string());
    }
    const auto parsed = rtrain::detail::parse_tokenizer(boost::json::serialize(old), "old.json");
    CHECK((parsed.pairs.encode("hello") == Tokenizer({"t"}, file("byte_level")).encode("hello")));

    using Object = boost::json::object;
    CHECK(test::contains(error_of([](Object& all) {
                             all["normalizer"] = {{"type", "NFC"}};
                         }),
                         "\"changed.json\" is not a supported tokenizer.json"));
    CHECK(test::contains(error_of([](Object& all) {
                             all["normalizer"] = {{"type", "NFC"}};
                         }),
                         "expected that \"normalizer\" is null [RT-D60]"));
    CHECK(test::contains(error_of([](Object& all) { all["pre_tokenizer"] = nullptr; }), "RT-D60"));
    CHECK(test::contains(error_of([](Object& all) { all["truncation"] = Object(); }), "RT-D60"));
    CHECK(test::contains(error_of([](Object& all) {
                             all["post_processor"] = {{"type", "TemplateProcessing"}};
                         }),
                         "post_processor"));
    CHECK(test::contains(
        error_of([](Object& all) { all["model"].as_object()["type"] = "WordPiece"; }), "BPE"));
    CHECK(test::contains(error_of([](Object& all) { all["model"].as_object().erase("merges"); }),
                         "RT-D60"));
    CHECK(test::contains(
        error_of([](Object& all) { all["model"].at("vocab").as_object()["twice"] = 5; }),
        "5 does not"));
    CHECK(test::contains(
        error_of([](Object& all) { all["model"].at("vocab").as_object()["less"] = -1; }),
        "integers from 0"));
    CHECK(test::contains(
        error_of([](Object& all) { all["model"].at("merges").as_array().push_back("h"); }),
        "two parts"));
    CHECK(test::contains(
        error_of([](Object& all) { all["model"].at("merges").as_array().push_back("q q"); }),
        "\"q\" and \"q\""));
    CHECK(test::contains(
        error_of([](Object& all) { all["added_tokens"].at(0).as_object()["lstrip"] = true; }),
        "lstrip"));
    CHECK(code_of([] { (void)rtrain::detail::parse_tokenizer("{\"model\": ", "cut.json"); }) ==
          "RT-D60");
    CHECK(code_of([] { (void)Tokenizer({"text"}, file("missing")); }) == "RT-S4");
    CHECK(code_of([] { (void)Tokenizer({}, file("byte_level")); }) == "RT-D59");
}

TEST_CASE("Tokenizer.texts_that_have_no_ids") {
    const Tokenizer tokenizer({"text"}, file("byte_level"));
    CHECK(code_of([&] { (void)tokenizer.encode("a\xff"); }) == "RT-D61");
    CHECK(test::contains(message_of([&] {
                             (void)tokenizer.transform(batch_of({"good", "cut \xe2\x82"}));
                         }),
                         "column \"text\", row 1 of the batch: a text is not UTF-8 at byte 4"));
    CHECK(code_of([&] { (void)tokenizer.decode(Ids{0, 100000}); }) == "RT-D62");
    CHECK(code_of([&] {
              (void)tokenizer.transform(data::Batch({{"text", at::zeros({2})}}));
          }) == "RT-D56");
    CHECK(code_of([&] {
              (void)tokenizer.transform(
                  {{}, {{"text", texts_of({""})}}, {{"text", at::zeros({1}).to(at::kBool)}}});
          }) == "RT-D57");

    auto without_q = read_json("byte_level");
    without_q.at("model").at("vocab").as_object().erase("q");
    const Directory directory;
    storage::replace_file(directory.path / "q.json", boost::json::serialize(without_q));
    const Tokenizer fewer({"text"}, directory.path / "q.json");
    CHECK(fewer.encode("hello").size() == tokenizer.encode("hello").size());
    CHECK(code_of([&] { (void)fewer.encode("q"); }) == "RT-D61");
    // A word of a million letters takes no more than n log n.
    CHECK(tokenizer.encode(std::string(1000000, 'x')).size() > 1000);
}

TEST_CASE("Tokenizer.characters") {
    const std::vector<std::string> rows{"ba\u00e9", "", "\U0001f600a"};
    class Rows : public data::Dataset::Source {
    public:
        [[nodiscard]] std::int64_t size() const override { return 1; }
        [[nodiscard]] data::Batch rows(const at::Tensor& /*indices*/) const override {
            return batch_of({"ba\u00e9", "", "\U0001f600a"});
        }
    };
    CharacterTokenizer tokenizer({"text"});
    CHECK(code_of([&] { (void)tokenizer.encode("a"); }) == "RT-D55");
    tokenizer.fit(data::Dataset(std::make_shared<const Rows>()));
    CHECK(tokenizer.size() == 4);
    const auto batch = tokenizer.transform(batch_of(rows));
    CHECK((ids_of(batch.ragged("text").values) == Ids{1, 0, 2, 3, 0}));
    CHECK((ids_of(batch.ragged("text").offsets) == Ids{0, 3, 3, 5}));
    CHECK(tokenizer.decode(Ids{1, 0, 2, 3}) == "ba\u00e9\U0001f600");
    CHECK(code_of([&] { (void)tokenizer.decode(Ids{4}); }) == "RT-D62");
    CHECK(code_of([&] { (void)tokenizer.encode("c"); }) == "RT-D61");

    checkpoint::Snapshot snapshot;
    StateWriter out(snapshot, "tokenizer");
    tokenizer.save(out);
    CharacterTokenizer loaded({"text"});
    loaded.load(StateReader(snapshot, "tokenizer"));
    CHECK((loaded.encode("ab") == Ids{0, 1}));
}
