// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preprocessors that turn text into numbers for a language model. Text columns are ragged; what
/// comes out is ragged, too: int64, as many in a row as it has tokens.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/ragged.hpp>
#include <rtrain/preprocess/categories.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/saved.hpp>
#include <rtrain/preprocess/tokenizer_json.hpp>
#include <rtrain/preprocess/words.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/storage/file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Throws DataError [RT-D61] when `text` is not UTF-8.
inline void require_utf8(std::string_view text) {
    for (std::size_t place = 0; place < text.size();) {
        const std::size_t length = utf8_length(text.substr(place));
        if (length == 0) {
            throw DataError("RT-D61", concat("a text is not UTF-8 at byte ", place, " of ",
                                             text.size(), "; convert it"));
        }
        place += length;
    }
}

[[nodiscard]] inline DataError unknown_id(std::int64_t id, std::int64_t tokens) {
    return DataError("RT-D62", concat("the tokenizer has no token ", id, "; it has ", tokens));
}

/// Text columns, each row replaced by `encode(text)`, a vector of int64. Throws DataError [RT-D2,
/// RT-D56, RT-D57], and what encode() throws, with column and row.
template <class Encode>
[[nodiscard]] data::Batch encoded(const data::Batch& batch, const preprocess::Names& columns,
                                  const preprocess::Names& output, const Encode& encode) {
    ChangedBatch changed(batch);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (!is_ragged(batch, columns[i])) {
            throw wrong_column(columns[i], concat("has shape ", batch[columns[i]].sizes()), "text");
        }
        const ValueColumn rows(batch, columns[i]);
        std::vector<std::int64_t> values;
        std::vector<std::int64_t> offsets{0};
        for (std::int64_t row = 0; row < rows.size(); ++row) {
            const auto text = rows[row];
            if (!text) {
                throw missing_value(columns[i]);
            }
            try {
                const auto ids = encode(std::get<std::string>(*text));
                values.insert(values.end(), ids.begin(), ids.end());
            } catch (const DataError& error) {
                throw DataError(error.code(), concat("column \"", columns[i], "\", row ", row,
                                                     " of the batch: ", error.message()));
            }
            offsets.push_back(static_cast<std::int64_t>(values.size()));
        }
        const at::Device device = batch.ragged(columns[i]).values.device();
        changed.set(output[i], data::Ragged{at::tensor(values, at::kLong).to(device),
                                            at::tensor(offsets, at::kLong).to(device)});
    }
    return std::move(changed).done();
}

/// Which characters a text column has.
class Alphabet {
public:
    void add(const data::Batch& batch, const std::string& name) {
        if (batch.size() == 0) {
            return;
        }
        if (!is_ragged(batch, name)) {
            throw wrong_column(name, concat("has shape ", batch[name].sizes()), "text");
        }
        const ValueColumn rows(batch, name);
        for (std::int64_t row = 0; row < rows.size(); ++row) {
            if (const auto value = rows[row]) {
                std::string_view text = std::get<std::string>(*value);
                require_utf8(text);
                while (!text.empty()) {
                    const auto [code, bytes] = first_character(text);
                    codes_.push_back(code);
                    text.remove_prefix(bytes);
                }
                shrink();
            }
        }
    }
    void merge(const Alphabet& next, const std::string& /*name*/) {
        codes_.insert(codes_.end(), next.codes_.begin(), next.codes_.end());
        shrink();
    }
    void pack(Packer& out) const { out.put(codes_); }
    void unpack(Unpacker& in) { codes_ = in.take_vector<std::int64_t>(); }

    /// Code points, in order.
    [[nodiscard]] const std::vector<std::int64_t>& codes() const noexcept { return codes_; }

private:
    void shrink() {
        std::ranges::sort(codes_);
        const auto rest = std::ranges::unique(codes_);
        codes_.erase(rest.begin(), rest.end());
    }
    std::vector<std::int64_t> codes_;
};

} // namespace rtrain::detail

namespace rtrain::preprocess {

/// Each character (Unicode code point) a token, numbered from 0 by code point; fit() learns which
/// there are in all columns together. One that it has not seen is an error.
///
/// @code
/// rtrain::preprocess::CharacterTokenizer tokenizer({"text"});
/// worker.fit(tokenizer, "train");
/// @endcode
class CharacterTokenizer {
public:
    /// Results replace the columns, unless `output_columns` has other names. Throws DataError
    /// [RT-D59].
    explicit CharacterTokenizer(Names columns, Names output_columns = {})
        : columns_(std::move(columns)),
          output_(rtrain::detail::output_names(columns_, std::move(output_columns))) {}

    /// Throws DataError [RT-D2, RT-D56, RT-D58, RT-D61]. *Collective* when `ranks` are given.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) {
        rtrain::detail::Alphabet all;
        rtrain::detail::gather(rows, ranks,
                               rtrain::detail::OfColumns<rtrain::detail::Alphabet>(columns_))
            .each([&](const auto& of, const std::string& name) { all.merge(of, name); });
        if (all.codes().empty()) {
            throw rtrain::detail::nothing_to_fit(columns_.front());
        }
        codes_ = all.codes();
    }
    /// Throws DataError [RT-D2, RT-D55, RT-D56, RT-D57, RT-D61].
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        return rtrain::detail::encoded(batch, columns_, output_,
                                       [&](std::string_view text) { return encode(text); });
    }

    /// How many tokens there are.
    [[nodiscard]] std::int64_t size() const noexcept {
        return static_cast<std::int64_t>(codes_.size());
    }
    /// Throws DataError [RT-D55, RT-D61].
    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const {
        rtrain::detail::require_fitted(!codes_.empty(), "CharacterTokenizer");
        rtrain::detail::require_utf8(text);
        std::vector<std::int64_t> ids;
        while (!text.empty()) {
            const auto [code, bytes] = rtrain::detail::first_character(text);
            const auto found = std::ranges::lower_bound(codes_, static_cast<std::int64_t>(code));
            if (found == codes_.end() || *found != static_cast<std::int64_t>(code)) {
                throw DataError("RT-D61",
                                rtrain::detail::concat("the character \"", text.substr(0, bytes),
                                                       "\" was in no text of fit()"));
            }
            ids.push_back(found - codes_.begin());
            text.remove_prefix(bytes);
        }
        return ids;
    }
    /// Throws DataError [RT-D62].
    [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const {
        std::string text;
        for (const std::int64_t id : ids) {
            if (id < 0 || id >= size()) {
                throw rtrain::detail::unknown_id(id, size());
            }
            rtrain::detail::append_utf8(
                text, static_cast<char32_t>(codes_[static_cast<std::size_t>(id)]));
        }
        return text;
    }

    void save(StateWriter& out) const {
        out.value("fitted", !codes_.empty());
        if (!codes_.empty()) {
            out.tensor("characters", at::tensor(codes_, at::kLong));
        }
    }
    void load(const StateReader& in) {
        codes_.clear();
        if (in.value("fitted").as_bool()) {
            const at::Tensor saved = in.tensor("characters").contiguous();
            const auto* const code = saved.const_data_ptr<std::int64_t>();
            codes_.assign(code, code + saved.numel());
        }
    }

private:
    Names columns_;
    Names output_;
    std::vector<std::int64_t> codes_; ///< by id; empty before fit()
};

/// Byte-level byte-pair encoding, as GPT-2's: any text has tokens. Read from tokenizer.json, the
/// file of Hugging Face's tokenizers, whose ids it gives.
///
/// @code
/// rtrain::preprocess::Tokenizer gpt2({"text"}, "gpt2/tokenizer.json");
/// const auto ids = gpt2.encode("Hello there");
/// @endcode
class Tokenizer {
public:
    /// Results replace the columns, unless `output_columns` has other names. Throws StorageError
    /// [RT-S4], and DataError [RT-D59], [RT-D60] for a file that is damaged, or whose tokenizer
    /// does more than this one.
    Tokenizer(Names columns, const std::filesystem::path& tokenizer_json, Names output_columns = {})
        : columns_(std::move(columns)),
          output_(rtrain::detail::output_names(columns_, std::move(output_columns))),
          model_(std::make_shared<const rtrain::detail::TokenizerModel>(
              rtrain::detail::parse_tokenizer(storage::read_file(tokenizer_json),
                                              tokenizer_json.string()))) {}

    /// Throws DataError [RT-D2, RT-D56, RT-D57, RT-D61].
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        Known known;
        return rtrain::detail::encoded(batch, columns_, output_,
                                       [&](std::string_view text) { return encode(text, known); });
    }

    /// Added tokens in the text, such as "<|endoftext|>", become one id each. Throws DataError
    /// [RT-D61] for what is not UTF-8, and for a byte that the vocabulary lacks.
    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const {
        Known known;
        return encode(text, known);
    }
    /// The bytes of these tokens, added ones included. Throws DataError [RT-D62].
    [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const {
        std::string text;
        for (const std::int64_t id : ids) {
            const auto added =
                std::ranges::find(model_->added, id, &rtrain::detail::AddedToken::id);
            const auto token = model_->pairs.tokens().find(id);
            if (added != model_->added.end()) {
                text += added->content;
            } else if (token != model_->pairs.tokens().end()) {
                text += rtrain::detail::unspell(token->second).value_or(token->second);
            } else {
                throw rtrain::detail::unknown_id(id, size());
            }
        }
        return text;
    }

    /// How many tokens there are, added ones included.
    [[nodiscard]] std::int64_t size() const {
        const auto& tokens = model_->pairs.tokens();
        const auto more = std::ranges::count_if(
            model_->added, [&](const auto& token) { return !tokens.contains(token.id); });
        return static_cast<std::int64_t>(tokens.size()) + more;
    }

    /// Writes tokenizer.json. Throws StorageError [RT-S3].
    void write(const std::filesystem::path& tokenizer_json) const {
        storage::replace_file(tokenizer_json, rtrain::detail::tokenizer_text(*model_));
    }

    /// The whole tokenizer: a checkpoint does not need the file.
    void save(StateWriter& out) const {
        out.tensor("tokenizer_json",
                   rtrain::detail::to_bytes(rtrain::detail::tokenizer_text(*model_)));
    }
    void load(const StateReader& in) {
        model_ =
            std::make_shared<const rtrain::detail::TokenizerModel>(rtrain::detail::parse_tokenizer(
                rtrain::detail::to_string(in.tensor("tokenizer_json").contiguous()),
                in.prefix() + "tokenizer_json"));
    }

private:
    /// Words that were encoded before, while a batch is transformed.
    using Known = std::unordered_map<std::string, std::vector<std::int64_t>>;

    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text, Known& known) const {
        rtrain::detail::require_utf8(text);
        std::vector<std::int64_t> ids;
        split(text, false, ids, [&](std::string_view between) {
            split(between, true, ids,
                  [&](std::string_view words) { encode_words(words, known, ids); });
        });
        return ids;
    }

    /// Cuts a text at added tokens, the leftmost first, of two there the longer.
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
        std::string with_space;
        if (model_->add_prefix_space && text.front() != ' ') {
            text = with_space = rtrain::detail::concat(' ', text);
        }
        while (!text.empty()) {
            const std::string_view word = text.substr(0, rtrain::detail::first_word(text));
            auto [found, is_new] = known.try_emplace(std::string(word));
            if (is_new) {
                require_bytes(word);
                found->second = model_->pairs.encode(word);
            }
            ids.insert(ids.end(), found->second.begin(), found->second.end());
            text.remove_prefix(word.size());
        }
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
    std::shared_ptr<const rtrain::detail::TokenizerModel> model_;
};

} // namespace rtrain::preprocess
