// SPDX-License-Identifier: Apache-2.0
/// @file
/// A preprocessor that maps the characters of text to numbers.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/preprocess/text_columns.hpp>
#include <rtrain/preprocess/words.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The characters that occur in a text column.
class Alphabet {
public:
    void add(const data::Batch& batch, const std::string& name) {
        if (batch.size() == 0) {
            return;
        }
        for_each_text(batch, name, [this](std::string_view text) {
            while (!text.empty()) {
                const auto [code, bytes] = first_character(text);
                codes_.push_back(code);
                text.remove_prefix(bytes);
            }
            shrink();
        });
    }
    void merge(const Alphabet& next, const std::string& /*name*/) {
        codes_.insert(codes_.end(), next.codes_.begin(), next.codes_.end());
        shrink();
    }
    void pack(Packer& out) const { out.put(codes_); }
    void unpack(Unpacker& in) { codes_ = in.take_vector<std::int64_t>(); }

    /// Code points, sorted.
    [[nodiscard]] const std::vector<std::int64_t>& codes() const noexcept { return codes_; }

private:
    void shrink() {
        std::ranges::sort(codes_);
        codes_.erase(std::unique(codes_.begin(), codes_.end()), codes_.end());
    }
    std::vector<std::int64_t> codes_;
};

} // namespace rtrain::detail

namespace rtrain::preprocess {

/// Each character (Unicode code point) is a token, numbered from 0 by code point; fit() collects
/// the characters of all columns together. An unknown character is an error.
///
/// @code
/// rtrain::preprocess::CharacterTokenizer tokenizer({"text"});
/// worker.fit(tokenizer, "train");
/// @endcode
class CharacterTokenizer {
public:
    /// Results replace the columns unless `output_columns` names others. Throws DataError [RT-D59].
    explicit CharacterTokenizer(Names columns, Names output_columns = {})
        : columns_(std::move(columns)),
          output_(rtrain::detail::output_names(columns_, std::move(output_columns))) {}

    /// Throws DataError [RT-D2, RT-D56, RT-D58, RT-D61]. *Collective* if `ranks` is given.
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

    /// Number of tokens.
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
                                                       "\" did not occur in fit()"));
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

} // namespace rtrain::preprocess
