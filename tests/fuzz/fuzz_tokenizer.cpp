// SPDX-License-Identifier: Apache-2.0
// Any bytes, as tokenizer.json. What is accepted encodes text by ids that it has, whose bytes are
// the text, and can be written again.
#include "require.hpp"

#include <rtrain/preprocess/tokenizer_json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

using namespace rtrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    rtrain::detail::TokenizerModel model;
    try {
        model = rtrain::detail::parse_tokenizer(text, "fuzzed");
    } catch (const DataError&) {
        return 0;
    }
    std::string word;
    for (const char byte : text.substr(0, 256)) {
        if (model.pairs.byte_ids()[static_cast<unsigned char>(byte)] >= 0) {
            word += byte;
        }
    }
    std::string decoded;
    for (const std::int64_t id : model.pairs.encode(word)) {
        const auto token = model.pairs.tokens().find(id);
        require(token != model.pairs.tokens().end(), "ids are in the vocabulary");
        const auto bytes = rtrain::detail::unspell(token->second);
        require(bytes.has_value(), "tokens of bytes are bytes");
        decoded += *bytes;
    }
    require(decoded == word, "the text comes back");
    const auto again =
        rtrain::detail::parse_tokenizer(rtrain::detail::tokenizer_text(model), "again");
    require(again.pairs.tokens() == model.pairs.tokens(), "tokens come back");
    require(again.pairs.merges() == model.pairs.merges(), "merges come back");
    require(again.added.size() == model.added.size(), "added tokens come back");
    return 0;
}
