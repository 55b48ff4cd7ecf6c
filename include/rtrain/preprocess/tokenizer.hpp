// SPDX-License-Identifier: Apache-2.0
/// @file
/// A preprocessor that tokenizes text for a language model by byte-pair encoding.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/byte_pair_training.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/text_columns.hpp>
#include <rtrain/preprocess/tokenizer_json.hpp>
#include <rtrain/preprocess/words.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/storage/file/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Calls `visit(word)` for each word of a UTF-8 text.
template <class Visit>
void for_each_word(std::string_view text, bool add_prefix_space, const Visit& visit) {
    std::string with_space;
    if (add_prefix_space && !text.empty() && text.front() != ' ') {
        text = with_space = concat(' ', text);
    }
    while (!text.empty()) {
        const std::string_view word = text.substr(0, first_word(text));
        visit(word);
        text.remove_prefix(word.size());
    }
}

/// Counts the words of a text column.
class Words {
public:
    explicit Words(bool add_prefix_space = false) : add_prefix_space_(add_prefix_space) {}

    void add(const data::Batch& batch, const std::string& name) {
        if (batch.size() == 0) {
            return;
        }
        for_each_text(batch, name, [&](std::string_view text) {
            for_each_word(text, add_prefix_space_,
                          [&](std::string_view word) { ++counts_[std::string(word)]; });
        });
    }
    void merge(const Words& next, const std::string& /*name*/) {
        for (const auto& [word, count] : next.counts_) {
            counts_[word] += count;
        }
    }
    void pack(Packer& out) const {
        out.put(counts_.size());
        for (const auto& [word, count] : counts_) {
            out.put(std::string_view(word));
            out.put(count);
        }
    }
    void unpack(Unpacker& in) {
        counts_.clear();
        for (auto left = in.take<std::size_t>(); left > 0; --left) {
            std::string word = in.take_text();
            counts_.emplace_hint(counts_.end(), std::move(word), in.take<std::int64_t>());
        }
    }

    [[nodiscard]] const WordCounts& counts() const noexcept { return counts_; }

private:
    bool add_prefix_space_;
    WordCounts counts_;
};

} // namespace rtrain::detail

namespace rtrain::preprocess {

/// Byte-level byte-pair encoding like GPT-2's: it can encode any text. Read from tokenizer.json,
/// the file of Hugging Face's tokenizers, or trained by fit(); ids are identical to theirs.
///
/// @code
/// rtrain::preprocess::Tokenizer gpt2({"text"}, "gpt2/tokenizer.json");
/// const auto ids = gpt2.encode("Hello there");
///
/// rtrain::preprocess::Tokenizer own({"text"}, {.vocab_size = 8000});
/// worker.fit(own, "train");
/// own.write("tokenizer.json");
/// @endcode
class Tokenizer {
public:
    /// Results replace the columns unless `output_columns` names others. Throws StorageError
    /// [RT-S4], and DataError [RT-D59], [RT-D60] for a file that is damaged, or uses features not
    /// supported here.
    Tokenizer(Names columns, const std::filesystem::path& tokenizer_json, Names output_columns = {})
        : columns_(std::move(columns)),
          output_(rtrain::detail::output_names(columns_, std::move(output_columns))),
          model_(std::make_shared<const rtrain::detail::TokenizerModel>(
              rtrain::detail::parse_tokenizer(storage::read_file(tokenizer_json),
                                              tokenizer_json.string()))) {}
    /// A tokenizer to be trained by fit(). Throws DataError [RT-D59].
    Tokenizer(Names columns, BytePairOptions options, Names output_columns = {})
        : columns_(std::move(columns)),
          output_(rtrain::detail::output_names(columns_, std::move(output_columns))),
          options_(std::move(options)) {
        auto tokens = options_->special_tokens;
        std::ranges::sort(tokens);
        if (std::ranges::find(tokens, "") != tokens.end() ||
            std::ranges::adjacent_find(tokens) != tokens.end()) {
            throw DataError("RT-D59", "special tokens are empty or repeated; expected distinct "
                                      "tokens of at least one byte");
        }
        if (const std::int64_t least = 256 + std::ssize(tokens); options_->vocab_size < least) {
            throw DataError("RT-D59",
                            rtrain::detail::concat("vocab_size of a Tokenizer is ",
                                                   options_->vocab_size, "; expected at least ",
                                                   least, ", for bytes and special tokens"));
        }
    }

    /// Trains on all columns together, from scratch each time; a tokenizer read from a file does
    /// not change. Throws DataError [RT-D2, RT-D56, RT-D58, RT-D61]. *Collective* if `ranks` is
    /// given: each rank counts the words of its share of the rows, and all learn the same tokens.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        if (!options_) {
            return;
        }
        using rtrain::detail::Words;
        Words all;
        rtrain::detail::gather(
            rows, ranks,
            rtrain::detail::OfColumns<Words>(columns_, Words(options_->add_prefix_space)))
            .each([&](const Words& of, const std::string& name) { all.merge(of, name); });
        if (all.counts().empty()) {
            throw rtrain::detail::nothing_to_fit(columns_.front());
        }
        rtrain::detail::TokenizerModel learned{
            .pairs = rtrain::detail::BytePairTrainer(all.counts(), *options_).train(),
            .added = {},
            .add_prefix_space = options_->add_prefix_space};
        for (const std::string& token : options_->special_tokens) {
            learned.added.push_back(
                {.content = token, .id = *learned.pairs.id_of(token), .special = true});
        }
        model_ = std::make_shared<const rtrain::detail::TokenizerModel>(std::move(learned));
    }

    /// Throws DataError [RT-D2, RT-D55, RT-D56, RT-D57, RT-D61].
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        Known known;
        return rtrain::detail::encoded(batch, columns_, output_,
                                       [&](std::string_view text) { return encode(text, known); });
    }

    /// Added tokens in the text, such as "<|endoftext|>", become one id each. Throws DataError
    /// [RT-D55]; [RT-D61] if the text is not UTF-8, or has a byte that the vocabulary lacks.
    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const {
        Known known;
        return encode(text, known);
    }
    /// Returns the bytes of these tokens, including added ones. Throws DataError [RT-D55, RT-D62].
    [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const {
        std::string text;
        for (const std::int64_t id : ids) {
            const auto added =
                std::ranges::find(model().added, id, &rtrain::detail::AddedToken::id);
            const auto token = model().pairs.tokens().find(id);
            if (added != model().added.end()) {
                text += added->content;
            } else if (token != model().pairs.tokens().end()) {
                text += rtrain::detail::unspell(token->second).value_or(token->second);
            } else {
                throw rtrain::detail::unknown_id(id, size());
            }
        }
        return text;
    }

    /// Number of tokens, including added ones. Throws DataError [RT-D55].
    [[nodiscard]] std::int64_t size() const {
        const auto& tokens = model().pairs.tokens();
        const auto more = std::ranges::count_if(
            model().added, [&](const auto& token) { return !tokens.contains(token.id); });
        return static_cast<std::int64_t>(tokens.size()) + more;
    }

    /// Writes tokenizer.json. Throws DataError [RT-D55], StorageError [RT-S3].
    void write(const std::filesystem::path& tokenizer_json) const {
        storage::replace_file(tokenizer_json, rtrain::detail::tokenizer_text(model()));
    }

    /// Saves the whole tokenizer: a checkpoint does not need the file.
    void save(StateWriter& out) const {
        if (model_) {
            out.tensor("tokenizer_json",
                       rtrain::detail::to_bytes(rtrain::detail::tokenizer_text(*model_)));
        }
    }
    void load(const StateReader& in) {
        if (!in.has_tensor("tokenizer_json")) { // not fitted
            model_ = nullptr;
            return;
        }
        model_ =
            std::make_shared<const rtrain::detail::TokenizerModel>(rtrain::detail::parse_tokenizer(
                rtrain::detail::to_string(in.tensor("tokenizer_json").contiguous()),
                in.prefix() + "tokenizer_json"));
    }

private:
    /// Cache of encoded words while a batch is transformed.
    using Known = std::unordered_map<std::string, std::vector<std::int64_t>>;

    /// Throws DataError [RT-D55].
    [[nodiscard]] const rtrain::detail::TokenizerModel& model() const {
        rtrain::detail::require_fitted(model_ != nullptr, "Tokenizer");
        return *model_;
    }

    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text, Known& known) const {
        (void)model();
        rtrain::detail::require_utf8(text);
        std::vector<std::int64_t> ids;
        split(text, false, ids, [&](std::string_view between) {
            split(between, true, ids,
                  [&](std::string_view words) { encode_words(words, known, ids); });
        });
        return ids;
    }

    /// Splits a text at added tokens: the leftmost first, then the longer.
    template <class Between>
    void split(std::string_view text, bool normalized, std::vector<std::int64_t>& ids,
               const Between& between) const {
        std::size_t begin = 0;
        for (std::size_t place = 0; place < text.size();) {
            const rtrain::detail::AddedToken* here = nullptr;
            for (const auto& token : model_->added) {
                if (token.normalized == normalized &&
                    text.substr(place).starts_with(token.content) &&
                    (here == nullptr || token.content.size() > here->content.size())) {
                    here = &token;
                }
            }
            if (here == nullptr) {
                ++place;
                continue;
            }
            if (place > begin) {
                between(text.substr(begin, place - begin));
            }
            ids.push_back(here->id);
            begin = place += here->content.size();
        }
        if (begin < text.size()) {
            between(text.substr(begin));
        }
    }

    void encode_words(std::string_view text, Known& known, std::vector<std::int64_t>& ids) const {
        rtrain::detail::for_each_word(text, model_->add_prefix_space, [&](std::string_view word) {
            auto [found, is_new] = known.try_emplace(std::string(word));
            if (is_new) {
                require_bytes(word);
                found->second = model_->pairs.encode(word);
            }
            ids.insert(ids.end(), found->second.begin(), found->second.end());
        });
    }

    void require_bytes(std::string_view word) const {
        for (const char byte : word) {
            if (model_->pairs.byte_ids()[static_cast<unsigned char>(byte)] < 0) {
                throw DataError(
                    "RT-D61",
                    rtrain::detail::concat("the vocabulary has no token for the byte ",
                                           static_cast<unsigned>(static_cast<unsigned char>(byte)),
                                           " of \"", word, "\""));
            }
        }
    }

    Names columns_;
    Names output_;
    std::optional<BytePairOptions> options_;                      ///< empty: read from a file
    std::shared_ptr<const rtrain::detail::TokenizerModel> model_; ///< null before fit()
};

} // namespace rtrain::preprocess
