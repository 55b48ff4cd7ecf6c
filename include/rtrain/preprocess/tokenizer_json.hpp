// SPDX-License-Identifier: Apache-2.0
/// @file
/// tokenizer.json of Hugging Face's tokenizers, for byte-level BPE as in GPT-2. Anything that would
/// give different ids (other models, normalizers, pre-tokenizers, templates, truncation) is an
/// error.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/preprocess/byte_pairs.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A text that is one token wherever it occurs.
struct AddedToken {
    std::string content;
    std::int64_t id = 0;
    bool special = false;
    bool normalized = false; ///< matched after those that are not
};

struct TokenizerModel {
    BytePairs pairs;
    std::vector<AddedToken> added;
    bool add_prefix_space = false;
};

/// Reads the parts of a file; throws std::invalid_argument for unsupported or damaged parts.
class TokenizerReader {
public:
    explicit TokenizerReader(const boost::json::value& file) : file_(object(file, "the file")) {}

    [[nodiscard]] TokenizerModel read() {
        for (const char* const name : {"normalizer", "truncation", "padding"}) {
            expect(is_none(file_, name), concat("\"", name, "\" is null"));
        }
        expect(is_none(file_, "post_processor") || type_of("post_processor") == "ByteLevel",
               "\"post_processor\" is null or of type ByteLevel");
        expect(is_none(file_, "decoder") || type_of("decoder") == "ByteLevel",
               "\"decoder\" is null or of type ByteLevel");
        expect(type_of("pre_tokenizer") == "ByteLevel", "\"pre_tokenizer\" is of type ByteLevel");
        const auto& words = object(file_.at("pre_tokenizer"), "pre_tokenizer");
        expect(!words.contains("use_regex") || words.at("use_regex") == true, "use_regex is true");
        model_.add_prefix_space = flag(words, "add_prefix_space");
        read_model(object(file_.at("model"), "model"));
        read_added();
        return std::move(model_);
    }

private:
    using Object = boost::json::object;

    /// Throws std::invalid_argument, which parse_tokenizer() turns into an error about the file.
    static void expect(bool holds, const std::string& what) {
        if (!holds) {
            throw std::invalid_argument("expected that " + what);
        }
    }
    static const Object& object(const boost::json::value& value, std::string_view what) {
        expect(value.is_object(), concat(what, " is an object"));
        return value.get_object();
    }
    static bool is_none(const Object& of, std::string_view name) {
        const auto* const value = of.if_contains(name);
        return value == nullptr || value->is_null();
    }
    static bool flag(const Object& of, std::string_view name) {
        return !is_none(of, name) && of.at(name).as_bool();
    }
    static std::string text(const boost::json::value& value) {
        expect(value.is_string(), "tokens are strings");
        return std::string(value.get_string());
    }
    static std::int64_t id(const boost::json::value& value) {
        expect(value.is_int64() && value.get_int64() >= 0, "ids are integers from 0");
        return value.get_int64();
    }
    [[nodiscard]] std::string type_of(std::string_view name) const {
        const auto* const part = file_.if_contains(name);
        const auto* const type =
            part != nullptr && part->is_object() ? part->get_object().if_contains("type") : nullptr;
        return type == nullptr ? "" : text(*type);
    }

    void read_model(const Object& model) {
        expect(!model.contains("type") || model.at("type") == "BPE", "the model is of type BPE");
        for (const char* const name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
            expect(is_none(model, name) || model.at(name) == "", concat("the model has no ", name));
        }
        expect(is_none(model, "dropout"), "the model has no dropout");
        expect(!flag(model, "byte_fallback") && !flag(model, "ignore_merges"),
               "the model has neither byte_fallback nor ignore_merges");
        for (const auto& [token, number] : object(model.at("vocab"), "vocab")) {
            expect(model_.pairs.add_token(std::string(token), id(number)),
                   concat("each id has one token; ", id(number), " does not"));
        }
        const auto& bytes = model_.pairs.byte_ids();
        expect(is_none(model, "unk_token") || model.at("unk_token") == "" ||
                   std::ranges::find(bytes, -1) == bytes.end(),
               "the vocabulary has all bytes, or unk_token is not set");
        for (const auto& merge : model.at("merges").as_array()) {
            const auto [left, right] = two_of(merge);
            expect(model_.pairs.add_merge(left, right),
                   concat("the vocabulary has each merge: \"", left, "\" and \"", right, "\""));
        }
    }

    /// "a b", as in versions up to 0.19, or ["a", "b"].
    static std::pair<std::string, std::string> two_of(const boost::json::value& merge) {
        if (const auto* const both = merge.if_string()) {
            const std::string_view spelled(*both);
            const auto space = spelled.find(' ');
            expect(space != std::string_view::npos &&
                       spelled.find(' ', space + 1) == std::string_view::npos,
                   "a merge has two parts");
            return {std::string(spelled.substr(0, space)), std::string(spelled.substr(space + 1))};
        }
        expect(merge.is_array() && merge.get_array().size() == 2, "a merge has two parts");
        return {text(merge.get_array()[0]), text(merge.get_array()[1])};
    }

    void read_added() {
        if (is_none(file_, "added_tokens")) {
            return;
        }
        for (const auto& item : file_.at("added_tokens").as_array()) {
            const auto& token = object(item, "an added token");
            expect(!flag(token, "single_word") && !flag(token, "lstrip") && !flag(token, "rstrip"),
                   "added tokens are neither single_word nor lstrip nor rstrip");
            AddedToken added{text(token.at("content")), id(token.at("id")), flag(token, "special"),
                             flag(token, "normalized")};
            expect(!added.content.empty(), "added tokens are not empty");
            const auto known = model_.pairs.id_of(added.content);
            const auto& tokens = model_.pairs.tokens();
            expect(known ? *known == added.id : !tokens.contains(added.id),
                   concat("the added token \"", added.content, "\" has a unique id"));
            for (const AddedToken& other : model_.added) {
                expect(other.content != added.content && other.id != added.id,
                       "added tokens are distinct");
            }
            model_.added.push_back(std::move(added));
        }
    }

    const Object& file_;
    TokenizerModel model_;
};

/// Throws DataError [RT-D60] naming the file.
[[nodiscard]] inline TokenizerModel parse_tokenizer(std::string_view text,
                                                    const std::string& file) {
    return parsed([&] { return TokenizerReader(json::parse(text)).read(); },
                  [&](const std::string& why) {
                      return DataError(
                          "RT-D60", concat("\"", file,
                                           "\" is not a supported tokenizer.json of a byte-level "
                                           "BPE tokenizer: ",
                                           why));
                  });
}

/// Returns the file content, as tokenizers 0.20 and later write it.
[[nodiscard]] inline std::string tokenizer_text(const TokenizerModel& model) {
    boost::json::object vocabulary;
    for (const auto& [id, token] : model.pairs.tokens()) {
        vocabulary[token] = id;
    }
    boost::json::array merges;
    for (const auto& [left, right] : model.pairs.merges()) {
        merges.push_back({left, right});
    }
    boost::json::array added;
    for (const AddedToken& token : model.added) {
        added.push_back({{"id", token.id},
                         {"content", token.content},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", token.normalized},
                         {"special", token.special}});
    }
    const auto byte_level = [&](bool add_prefix_space) {
        return boost::json::object{{"type", "ByteLevel"},
                                   {"add_prefix_space", add_prefix_space},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
    };
    return json::serialize(
        boost::json::object{{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", std::move(added)},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", byte_level(model.add_prefix_space)},
                            {"post_processor", nullptr},
                            {"decoder", byte_level(true)},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", std::move(vocabulary)},
                              {"merges", std::move(merges)}}}});
}

} // namespace rtrain::detail
