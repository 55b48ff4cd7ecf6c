// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a byte-pair encoding from word counts; finds the same merges and ids as Hugging Face's
/// tokenizers (BpeTrainer, version 0.23). Cost tier 0: std only.
#pragma once

#include <rtrain/preprocess/byte_pairs.hpp>
#include <rtrain/preprocess/words.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::preprocess {

/// Options for training a Tokenizer.
struct BytePairOptions {
    /// Maximum vocabulary size, including the 256 bytes and special tokens.
    std::int64_t vocab_size = 30'000;
    /// Minimum frequency of a pair of adjacent tokens to be merged.
    std::int64_t min_frequency = 0;
    /// Texts that are one token wherever they occur; they get the first ids.
    std::vector<std::string> special_tokens = {};
    /// Treats text that does not begin with a space as if it did.
    bool add_prefix_space = false;
};

} // namespace rtrain::preprocess

namespace rtrain::detail {

/// Number of occurrences of each word, as bytes.
using WordCounts = std::map<std::string, std::int64_t>;

/// Repeatedly merges the most frequent pair of adjacent tokens within words into a token. Ties are
/// resolved in favour of smaller ids, left token first. Ids: special tokens, then bytes in the
/// order of their characters in the vocabulary, then merged tokens. If two merges give the same
/// token, it has the id and the pairs of the first.
class BytePairTrainer {
public:
    BytePairTrainer(const WordCounts& words, const preprocess::BytePairOptions& options)
        : options_(options) {
        for (const std::string& token : options.special_tokens) {
            (void)id_of(token);
        }
        std::array<Id, 256> of_byte{};
        for (const auto& [spelled, byte] : spelled_bytes()) {
            of_byte[byte] = id_of(spelled);
        }
        for (const auto& [word, count] : words) {
            words_.push_back({{}, count});
            for (const char byte : word) {
                words_.back().tokens.push_back(of_byte[static_cast<unsigned char>(byte)]);
            }
        }
    }

    [[nodiscard]] BytePairs train() {
        count_pairs();
        while (!candidates_.empty() &&
               static_cast<std::int64_t>(spelled_.size()) < options_.vocab_size) {
            Candidate best = take_best();
            if (const std::int64_t now = counts_[best.pair]; best.count != now) {
                best.count = now; // earlier merges consumed some
                offer(std::move(best));
                continue;
            }
            if (best.count < std::max<std::int64_t>(options_.min_frequency, 1)) {
                break;
            }
            merge(best);
        }
        return made();
    }

private:
    using Id = std::int32_t;
    using Pair = std::pair<Id, Id>;
    struct PairHash {
        std::size_t operator()(const Pair& pair) const noexcept {
            const auto both = static_cast<std::uint64_t>(pair.first) << 32U |
                              static_cast<std::uint64_t>(pair.second);
            return static_cast<std::size_t>(both * 0x9E3779B97F4A7C15U >> 16U);
        }
    };
    template <class T>
    using OfPair = std::unordered_map<Pair, T, PairHash>;
    struct Word {
        std::vector<Id> tokens;
        std::int64_t count;
    };
    struct Candidate {
        std::int64_t count;
        Pair pair;
        std::vector<std::size_t> words; ///< that may contain the pair, in order
        /// Sorts later.
        friend bool operator<(const Candidate& left, const Candidate& right) {
            return left.count != right.count ? left.count < right.count : left.pair > right.pair;
        }
    };

    [[nodiscard]] static std::map<std::string, unsigned char> spelled_bytes() {
        std::map<std::string, unsigned char> bytes; // UTF-8 sorts like code points
        for (int byte = 0; byte < 256; ++byte) {
            const char one = static_cast<char>(byte);
            bytes.emplace(spell({&one, 1}), static_cast<unsigned char>(byte));
        }
        return bytes;
    }

    /// Id of a token; the next free one if it is new.
    [[nodiscard]] Id id_of(const std::string& spelled) {
        const auto [at, is_new] = ids_.try_emplace(spelled, static_cast<Id>(spelled_.size()));
        if (is_new) {
            spelled_.push_back(spelled);
        }
        return at->second;
    }

    void count_pairs() {
        OfPair<std::vector<std::size_t>> places;
        for (std::size_t word = 0; word < words_.size(); ++word) {
            const auto& tokens = words_[word].tokens;
            for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
                add({tokens[i], tokens[i + 1]}, 1, word, places);
            }
        }
        offer_all(std::move(places));
    }

    /// Adds `times` to the count of the pair in a word.
    void add(const Pair& pair, std::int64_t times, std::size_t word,
             OfPair<std::vector<std::size_t>>& places) {
        counts_[pair] += times * words_[word].count;
        if (auto& of_pair = places[pair]; of_pair.empty() || of_pair.back() != word) {
            of_pair.push_back(word);
        }
    }

    void offer_all(OfPair<std::vector<std::size_t>>&& places) {
        for (auto& [pair, words] : places) {
            if (const std::int64_t count = counts_[pair]; count > 0) {
                offer({count, pair, std::move(words)});
            }
        }
    }
    void offer(Candidate candidate) {
        candidates_.push_back(std::move(candidate));
        std::ranges::push_heap(candidates_, std::less<>());
    }
    [[nodiscard]] Candidate take_best() {
        std::ranges::pop_heap(candidates_, std::less<>());
        Candidate best = std::move(candidates_.back());
        candidates_.pop_back();
        return best;
    }

    void merge(const Candidate& best) {
        const auto [left, right] = best.pair;
        const Id both = id_of(spelled_[static_cast<std::size_t>(left)] +
                              spelled_[static_cast<std::size_t>(right)]);
        merges_.push_back(best.pair);
        OfPair<std::vector<std::size_t>> places;
        for (const std::size_t word : best.words) {
            merge_in(word, best.pair, both, places);
        }
        offer_all(std::move(places));
    }

    /// The count of the pair itself is unchanged, because it is never read again, unless the merged
    /// token existed before.
    void merge_in(std::size_t word, const Pair& pair, Id both,
                  OfPair<std::vector<std::size_t>>& places) {
        auto& tokens = words_[word].tokens;
        const std::int64_t count = words_[word].count;
        std::vector<Id> merged;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (i + 1 == tokens.size() || Pair(tokens[i], tokens[i + 1]) != pair) {
                merged.push_back(tokens[i]);
                continue;
            }
            if (!merged.empty()) {
                counts_[{merged.back(), pair.first}] -= count;
                add({merged.back(), both}, 1, word, places);
            }
            ++i;
            if (i + 1 < tokens.size()) {
                counts_[{pair.second, tokens[i + 1]}] -= count;
                add({both, tokens[i + 1]}, 1, word, places);
            }
            merged.push_back(both);
        }
        tokens = std::move(merged);
    }

    [[nodiscard]] BytePairs made() const {
        BytePairs pairs;
        for (std::size_t id = 0; id < spelled_.size(); ++id) {
            (void)pairs.add_token(spelled_[id], static_cast<std::int64_t>(id));
        }
        OfPair<std::size_t> last; // for a pair merged again, this one counts
        for (std::size_t i = 0; i < merges_.size(); ++i) {
            last[merges_[i]] = i;
        }
        for (std::size_t i = 0; i < merges_.size(); ++i) {
            const auto [left, right] = merges_[i];
            if (last[merges_[i]] == i) {
                (void)pairs.add_merge(spelled_[static_cast<std::size_t>(left)],
                                      spelled_[static_cast<std::size_t>(right)]);
            }
        }
        return pairs;
    }

    const preprocess::BytePairOptions& options_;
    std::unordered_map<std::string, Id> ids_;
    std::vector<std::string> spelled_; ///< by id
    std::vector<Word> words_;
    OfPair<std::int64_t> counts_;
    std::vector<Candidate> candidates_; ///< a heap
    std::vector<Pair> merges_;
};

} // namespace rtrain::detail
