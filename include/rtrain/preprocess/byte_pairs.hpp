// SPDX-License-Identifier: Apache-2.0
/// @file
/// Byte-pair encoding: a vocabulary of byte strings, and an ordered list of merges. Follows R.
/// Sennrich et al.: Neural machine translation of rare words with subword units, 2016. Cost tier 0:
/// std only.
#pragma once

#include <rtrain/preprocess/words.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

class BytePairs {
public:
    BytePairs() { of_byte_.fill(-1); }

    /// `spelled`: as written by spell(). False if the token or the id exists.
    [[nodiscard]] bool add_token(const std::string& spelled, std::int64_t id) {
        if (!spelled_.try_emplace(id, spelled).second || !ids_.try_emplace(spelled, id).second) {
            return false;
        }
        if (const auto bytes = unspell(spelled); bytes && bytes->size() == 1) {
            of_byte_[static_cast<unsigned char>(bytes->front())] = id;
        }
        return true;
    }
    /// Appends a merge. False if one of the three tokens is missing from the vocabulary.
    [[nodiscard]] bool add_merge(const std::string& left, const std::string& right) {
        const auto a = id_of(left);
        const auto b = id_of(right);
        const auto both = id_of(left + right);
        if (!a || !b || !both) {
            return false;
        }
        merges_.insert_or_assign({*a, *b}, Merge{merged_.size(), *both});
        merged_.emplace_back(left, right);
        return true;
    }

    [[nodiscard]] std::optional<std::int64_t> id_of(const std::string& spelled) const {
        const auto found = ids_.find(spelled);
        return found == ids_.end() ? std::nullopt : std::optional(found->second);
    }
    /// -1 for a byte missing from the vocabulary.
    [[nodiscard]] const std::array<std::int64_t, 256>& byte_ids() const noexcept {
        return of_byte_;
    }
    [[nodiscard]] const std::map<std::int64_t, std::string>& tokens() const noexcept {
        return spelled_;
    }
    [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& merges() const noexcept {
        return merged_;
    }

    /// Returns the ids of a word whose bytes are all in the vocabulary: repeatedly applies the
    /// earliest learned merge to adjacent pairs, from the left.
    [[nodiscard]] std::vector<std::int64_t> encode(std::string_view word) const {
        constexpr auto none = static_cast<std::size_t>(-1);
        struct Piece {
            std::int64_t id; ///< -1: merged into the preceding one
            std::size_t before, after;
        };
        std::vector<Piece> pieces;
        for (std::size_t i = 0; i < word.size(); ++i) {
            pieces.push_back({of_byte_[static_cast<unsigned char>(word[i])], i - 1,
                              i + 1 < word.size() ? i + 1 : none});
        }
        using Candidate = std::tuple<std::size_t, std::size_t, std::int64_t>; // rank, place, id
        std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
        const auto offer = [&](std::size_t place) {
            if (place != none && pieces[place].after != none) {
                const auto found = merges_.find({pieces[place].id, pieces[pieces[place].after].id});
                if (found != merges_.end()) {
                    candidates.emplace(found->second.rank, place, found->second.id);
                }
            }
        };
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            offer(i);
        }
        while (!candidates.empty()) {
            const auto [rank, place, id] = candidates.top();
            candidates.pop();
            Piece& piece = pieces[place];
            if (piece.id < 0 || piece.after == none) {
                continue;
            }
            const auto now = merges_.find({piece.id, pieces[piece.after].id});
            if (now == merges_.end() || now->second.rank != rank) {
                continue; // one of the two has changed since
            }
            Piece& right = pieces[piece.after];
            piece.id = id;
            right.id = -1;
            piece.after = right.after;
            if (piece.after != none) {
                pieces[piece.after].before = place;
            }
            offer(piece.before);
            offer(place);
        }
        std::vector<std::int64_t> ids;
        for (std::size_t i = 0; i < pieces.size(); i = pieces[i].after) {
            ids.push_back(pieces[i].id);
        }
        return ids;
    }

private:
    struct Merge {
        std::size_t rank;
        std::int64_t id;
    };
    struct PairHash {
        std::size_t operator()(const std::pair<std::int64_t, std::int64_t>& pair) const noexcept {
            const auto a = static_cast<std::uint64_t>(pair.first);
            const auto b = static_cast<std::uint64_t>(pair.second);
            return static_cast<std::size_t>((a * 0x9E3779B97F4A7C15U) ^ (b + (a >> 7U)));
        }
    };

    std::map<std::int64_t, std::string> spelled_;
    std::unordered_map<std::string, std::int64_t> ids_;
    std::array<std::int64_t, 256> of_byte_{};
    std::unordered_map<std::pair<std::int64_t, std::int64_t>, Merge, PairHash> merges_;
    std::vector<std::pair<std::string, std::string>> merged_; ///< in file order
};

} // namespace rtrain::detail
