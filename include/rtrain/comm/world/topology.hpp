// SPDX-License-Identifier: Apache-2.0
/// @file
/// Topology of a group: the node and the local rank of each member.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rtrain::comm {

class Topology {
public:
    /// `members`: world ranks, including `mine`. `node_of`: node of each member; any numbers. Nodes
    /// are renumbered in order of first appearance.
    Topology(const std::vector<int>& members, const std::vector<int>& node_of, int mine) {
        std::vector<int> numbers;
        for (std::size_t i = 0; i < members.size(); ++i) {
            const int member = members[i];
            const int number = node_of[i];
            auto found = std::find(numbers.begin(), numbers.end(), number);
            if (found == numbers.end()) {
                found = numbers.insert(found, number);
                nodes_.emplace_back();
            }
            const auto node = static_cast<std::size_t>(found - numbers.begin());
            if (member == mine) {
                here_ = node;
                place_ = static_cast<int>(nodes_[node].size());
            }
            nodes_[node].push_back(member);
            node_of_.push_back(static_cast<int>(node));
        }
    }

    [[nodiscard]] int nodes() const noexcept { return static_cast<int>(nodes_.size()); }
    /// The node of a member, by its rank in the group.
    [[nodiscard]] int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
    /// This rank's node.
    [[nodiscard]] int node() const noexcept { return static_cast<int>(here_); }
    /// The members on this rank's node.
    [[nodiscard]] const std::vector<int>& local_members() const { return nodes_[here_]; }
    /// This rank's index among local_members().
    [[nodiscard]] int local_rank() const noexcept { return place_; }
    /// Number of ranks of each node that reduce a slice for it: the size of the smallest node.
    [[nodiscard]] int slices() const {
        const auto smallest = std::min_element(nodes_.begin(), nodes_.end(), fewer);
        return static_cast<int>(smallest->size());
    }
    [[nodiscard]] int ranks_per_node_at_most() const {
        const auto largest = std::max_element(nodes_.begin(), nodes_.end(), fewer);
        return static_cast<int>(largest->size());
    }
    /// The members with this local rank, one a node; only for local ranks below slices().
    [[nodiscard]] std::vector<int> cross_node_peers() const {
        std::vector<int> ranks;
        ranks.reserve(nodes_.size());
        for (const auto& node : nodes_) {
            ranks.push_back(node[static_cast<std::size_t>(place_)]);
        }
        return ranks;
    }

private:
    static bool fewer(const std::vector<int>& a, const std::vector<int>& b) {
        return a.size() < b.size();
    }

    std::vector<std::vector<int>> nodes_;
    std::vector<int> node_of_; ///< by member
    std::size_t here_ = 0;
    int place_ = 0;
};

} // namespace rtrain::comm
