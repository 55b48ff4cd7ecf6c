// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on parts of different sizes over messages, for ranks that share no memory.
#pragma once

#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/parts.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain::comm {

/// The bytes of one rank's part, as a message.
[[nodiscard]] inline at::Tensor bytes_of_part(const std::byte* data, const Parts& parts,
                                              std::size_t element, int rank) {
    const auto bytes = static_cast<std::int64_t>(element);
    return at::from_blob(const_cast<std::byte*>(data) + parts.begin(rank) * bytes,
                         {parts.count(rank) * bytes}, at::kByte);
}

/// Sends this rank's part of `data` to every rank, and receives theirs.
class MessagePartAllGather {
public:
    MessagePartAllGather(Group& group, std::byte* data, const Parts& parts, std::size_t element)
        : requests_(group.requests()) {
        exchange(
            group, requests_, group.next_tag(),
            [&](int peer) { return bytes_of_part(data, parts, element, peer); },
            [&](int /*peer*/) { return bytes_of_part(data, parts, element, group.rank()); });
    }
    [[nodiscard]] bool poll() { return requests_.poll(); }
    [[nodiscard]] std::vector<int> awaited() const { return requests_.awaited(); }

private:
    Requests requests_;
};

/// Sends every rank its part of `data`. When poll() has returned true, combine_into() combines the
/// parts that have arrived for this rank.
class MessagePartReduceScatter {
public:
    MessagePartReduceScatter(Group& group, const std::byte* data, const Parts& parts,
                             const Combining& combining)
        : group_(group), mine_(bytes_of_part(data, parts, combining.element, group.rank())),
          count_(parts.count(group.rank())),
          incoming_(at::empty({group.size(), mine_.numel()}, at::kByte)),
          requests_(group.requests()) {
        exchange(
            group, requests_, group.next_tag(),
            [this](int peer) { return incoming_.select(0, peer); },
            [&](int peer) { return bytes_of_part(data, parts, combining.element, peer); });
    }
    [[nodiscard]] bool poll() { return requests_.poll(); }
    [[nodiscard]] std::vector<int> awaited() const { return requests_.awaited(); }

    void combine_into(std::byte* own, const Combining& combining) const {
        std::vector<const std::byte*> sources;
        for (int rank = 0; rank < group_.size(); ++rank) {
            const at::Tensor part = rank == group_.rank() ? mine_ : incoming_.select(0, rank);
            sources.push_back(static_cast<const std::byte*>(part.const_data_ptr()));
        }
        combining.run({&own, 1}, sources, count_);
    }

private:
    Group& group_;
    at::Tensor mine_;
    std::int64_t count_;
    at::Tensor incoming_;
    Requests requests_;
};

} // namespace rtrain::comm
