// SPDX-License-Identifier: Apache-2.0
/// @file
/// Division of a state that all ranks hold: equal shares, each byte written once.
/// Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain::checkpoint {

struct TensorSize {
    std::int64_t elements = 0;
    std::int64_t element_bytes = 1;
};

/// Elements begin, ..., begin + count - 1 of tensor number `tensor`.
struct Slice {
    std::size_t tensor = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;

    friend bool operator==(const Slice&, const Slice&) = default;
};

/// The slices of one rank. The sequence of all tensors is cut into `ranks` shares of equally many
/// bytes; a cut moves to the nearest end of a tensor if that makes a share larger by 1/32 at most,
/// so that few tensors are cut. A tensor without elements belongs to the rank at its position.
[[nodiscard]] inline std::vector<Slice> plan_shards(const std::vector<TensorSize>& tensors,
                                                    int rank, int ranks) {
    std::vector<std::int64_t> starts{0}; // bytes before each tensor, and in total
    for (const TensorSize& tensor : tensors) {
        starts.push_back(starts.back() + tensor.elements * tensor.element_bytes);
    }
    const std::int64_t total = starts.back();
    const auto cut = [&](int number) {
        if (number == 0 || number == ranks) {
            return number == 0 ? std::int64_t{0} : total;
        }
        const std::int64_t ideal = total / ranks * number + total % ranks * number / ranks;
        const auto above = std::lower_bound(starts.begin(), starts.end(), ideal);
        const std::int64_t up = *above;
        const std::int64_t down = above == starts.begin() ? up : *(above - 1);
        const std::int64_t nearest = ideal - down < up - ideal ? down : up;
        return std::abs(nearest - ideal) <= total / ranks / 64 ? nearest : ideal;
    };
    const std::int64_t first = cut(rank);
    const std::int64_t last = cut(rank + 1);
    std::vector<Slice> slices;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t bytes = tensors[i].element_bytes;
        const auto element = [&](std::int64_t place) { // the first that begins at `place` or later
            return std::clamp((place - starts[i] + bytes - 1) / bytes, std::int64_t{0},
                              tensors[i].elements);
        };
        const bool empty_here = tensors[i].elements == 0 && first <= starts[i] &&
                                (starts[i] < last || (rank == ranks - 1 && starts[i] == total));
        const std::int64_t begin = element(first);
        const std::int64_t count = element(last) - begin;
        if (count > 0 || empty_here) {
            slices.push_back({i, begin, count});
        }
    }
    return slices;
}

} // namespace rtrain::checkpoint
