// SPDX-License-Identifier: Apache-2.0
/// @file
/// Blocking collectives among ranks that share memory. Data passes through slots in pieces small
/// enough to stay in the caches, so that main memory is read once and written once.
#pragma once

#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/parts.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/memory/collective_log.hpp>
#include <rtrain/comm/memory/double_buffered_exchange.hpp>
#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/comm/memory/shared_writer.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Zeroed memory visible to all members of `group`, which are on one node; `keeps_file`: until
/// close_file(). Collective. Throws CommError [RT-X12] on all of them if one cannot share it.
[[nodiscard]] inline SharedMemory share_memory(Group& group, std::size_t bytes,
                                               bool keeps_file = false) {
    SharedMemory memory;
    std::string problem;
    const auto attempt = [&](auto&& action) {
        try {
            action();
        } catch (const CommError& error) {
            problem = error.message();
        }
    };
    SharedMemory::Ticket ticket;
    if (group.rank() == 0) {
        attempt([&] {
            memory = SharedMemory::create(bytes);
            ticket = memory.ticket();
        });
    }
    at::Tensor posted =
        at::tensor({ticket.process, ticket.file, ticket.device, ticket.inode}, at::kLong);
    MessageBroadcast broadcast(group, posted, 0);
    group.wait(broadcast, "sharing memory");
    const auto* const told = posted.const_data_ptr<std::int64_t>();
    ticket = {.process = told[0], .file = told[1], .device = told[2], .inode = told[3]};
    if (group.rank() != 0 && ticket.file >= 0) {
        attempt([&] { memory = SharedMemory::open(ticket, bytes); });
    }
    at::Tensor succeeded = at::zeros({group.size()}, at::kByte);
    succeeded[group.rank()] = memory.data() != nullptr ? 1 : 0;
    MessageAllGather gather(group, succeeded);
    group.wait(gather, "sharing memory");
    if (!keeps_file) {
        memory.close_file();
    }
    if (!problem.empty()) {
        throw CommError("RT-X12", problem);
    }
    if (succeeded.min().item<int>() == 0) {
        const int peer = static_cast<int>(succeeded.argmin().item<std::int64_t>());
        throw CommError("RT-X12", detail::concat("rank ", group.world_rank(peer), " cannot share ",
                                                 bytes, " bytes of memory with this node's ranks"));
    }
    return memory;
}

class Node {
public:
    /// `group`: ranks of one node; it and `calls`, of the same ranks, outlive this object. `used`:
    /// the memory of an earlier Node of the same ranks, which must all have called this before one
    /// continues; if none, it is created. Collective; throws CommError [RT-X12].
    Node(Group& group, const Calls& calls, SharedMemory used)
        : group_(group), calls_(calls),
          memory_(used.data() != nullptr
                      ? std::move(used)
                      : share_memory(group, Memory::bytes_for(group.size(), slot_bytes) +
                                                CollectiveLog<Call>::bytes_for(group.size()))),
          rounds_(memory_.data(), group.rank(), group.size(), slot_bytes),
          record_(memory_.data() + Memory::bytes_for(group.size(), slot_bytes), group.rank(),
                  group.size()) {
        rounds_.begin_anew();
        record_.begin_anew();
    }

    /// Releases the memory for another Node of the same ranks; this one is unusable afterwards.
    [[nodiscard]] SharedMemory take_memory() noexcept { return std::move(memory_); }

    [[nodiscard]] Group& group() noexcept { return group_; }
    /// The record of the calls that ranks begin.
    [[nodiscard]] CollectiveLog<Call>& record() noexcept { return record_; }

    /// Publishes this rank's slot and waits until all have published theirs, with the same call.
    void meet(const Call& call) {
        rounds_.publish(call);
        calls_.wait(group_, rounds_.stages(), call);
        calls_.require_agreement(group_, rounds_.stages());
    }

    void all_reduce(const Call& call, std::byte* data, std::int64_t elements,
                    const Reduction& reduction) {
        const std::size_t bytes = static_cast<std::size_t>(elements) * c10::elementSize(call.type);
        if (bytes * static_cast<std::size_t>(size() - 1) <= small_bytes) {
            all_reduce_at_once(call, data, elements, bytes, reduction);
            return;
        }
        const Slices slices = Slices::balanced(elements, size());
        const std::size_t element = c10::elementSize(call.type);
        in_pieces(call, Pieces<Slices, Reduction>{.slices = slices,
                                                  .element = element,
                                                  .data = data,
                                                  .own = slice_of(slices, data, element),
                                                  .all = data,
                                                  .reduction = &reduction});
    }

    /// Combines slice `rank()` of every rank's `data` into `own`, which may be the slice itself.
    void reduce_scatter(const Call& call, const Slices& slices, const std::byte* data,
                        std::byte* own, const Reduction& reduction) {
        in_pieces(call, Pieces<Slices, Reduction>{.slices = slices,
                                                  .element = c10::elementSize(call.type),
                                                  .data = data,
                                                  .own = own,
                                                  .reduction = &reduction});
    }
    /// The same for parts of different sizes.
    void reduce_scatter(const Call& call, const Parts& parts, const std::byte* data, std::byte* own,
                        const Combining& combining) {
        in_pieces(call, Pieces<Parts, Combining>{.slices = parts,
                                                 .element = combining.element,
                                                 .data = data,
                                                 .own = own,
                                                 .reduction = &combining});
    }

    /// Sends every rank's slice of `data` to all ranks.
    void all_gather(const Call& call, const Slices& slices, std::byte* data) {
        all_gather<Slices>(call, slices, data, c10::elementSize(call.type));
    }
    /// The same for slices, or parts, of elements of so many bytes.
    template <class Cut>
    void all_gather(const Call& call, const Cut& slices, std::byte* data, std::size_t element) {
        in_pieces(call, Pieces<Cut, Reduction>{.slices = slices,
                                               .element = element,
                                               .data = data,
                                               .own = slice_of(slices, data, element),
                                               .all = data});
    }

    void broadcast(const Call& call, std::byte* data, std::size_t bytes, int root) {
        std::size_t begin = 0;
        do {
            const std::size_t count = std::min(slot_bytes, bytes - begin);
            if (rounds_.rank() == root) {
                writer_.copy(rounds_.next_slot(), data + begin, count);
            }
            meet(call);
            if (rounds_.rank() != root && count > 0) {
                std::memcpy(data + begin, rounds_.published_slot(root), count);
            }
            begin += count;
        } while (begin < bytes);
    }

private:
    using Memory = DoubleBufferedExchange<Call>;
    /// The best of 64 KiB to 12 MiB: docs/decisions/0009.
    static constexpr std::size_t slot_bytes = std::size_t{1} << 20;
    /// Up to this size, one barrier and reading all ranks' data is faster than two barriers and
    /// slices.
    static constexpr std::size_t small_bytes = std::size_t{32} << 10;

    [[nodiscard]] int size() const noexcept { return rounds_.size(); }
    template <class Cut>
    [[nodiscard]] std::byte* slice_of(const Cut& slices, std::byte* data,
                                      std::size_t element) const {
        return data + static_cast<std::size_t>(slices.begin(rounds_.rank())) * element;
    }

    void all_reduce_at_once(const Call& call, std::byte* data, std::int64_t elements,
                            std::size_t bytes, const Reduction& reduction) {
        writer_.copy(rounds_.next_slot(), data, bytes);
        meet(call);
        collect_sources(data, 0);
        reduction.run({&data, 1}, sources_, elements);
    }

    /// sources_ = what this rank contributes, at `own`, and what the others do, in their slots.
    void collect_sources(const std::byte* own, std::size_t begin) {
        sources_.clear();
        for (int rank = 0; rank < size(); ++rank) {
            sources_.push_back(rank == rounds_.rank() ? own : rounds_.published_slot(rank) + begin);
        }
    }

    /// `Cut` is Slices or Parts, `Combine` Reduction or Combining.
    template <class Cut, class Combine>
    struct Pieces {
        const Cut& slices;
        std::size_t element; ///< bytes
        const std::byte* data;
        std::byte* own;
        std::byte* all = nullptr;
        const Combine* reduction = nullptr;
    };
    /// A reduce-scatter of `data` into `own`, with a `reduction`, and an all-gather of `own` into
    /// `all`, unless that is null. In one round piece k is published and piece k - 1, reduced
    /// meanwhile, collected: one barrier a piece.
    template <class Cut, class Combine>
    void in_pieces(const Call& call, const Pieces<Cut, Combine>& of) {
        const Cut& slices = of.slices;
        std::byte* const all = of.all;
        const Combine* const reduction = of.reduction;
        const std::size_t element = of.element;
        const int mine = rounds_.rank();
        // A slot holds a piece for each rank, and a reduced one.
        const std::size_t room = slot_bytes / static_cast<std::size_t>(size() + 1) / 64 * 64;
        const auto piece = static_cast<std::int64_t>(room / element);
        const std::int64_t pieces = (slices.longest + piece - 1) / piece;
        const auto room_of = [&](int part) { return static_cast<std::size_t>(part) * room; };
        const auto count = [&](int part, std::int64_t k) {
            return std::clamp<std::int64_t>(slices.count(part) - k * piece, 0, piece);
        };
        const auto bytes = [&](int part, std::int64_t k) {
            return static_cast<std::size_t>(count(part, k)) * element;
        };
        const auto offset = [&](int part, std::int64_t k) {
            return static_cast<std::size_t>(slices.begin(part) + k * piece) * element;
        };
        if (pieces == 0) {
            meet(call);
        }
        for (std::int64_t k = reduction != nullptr ? 0 : 1; k <= pieces && pieces > 0; ++k) {
            std::byte* const slot = rounds_.next_slot();
            std::byte* const reduced = slot + room_of(size());
            if (k > 0 && count(mine, k - 1) > 0) {
                std::byte* const result =
                    of.own + static_cast<std::size_t>((k - 1) * piece) * element;
                if (reduction != nullptr) {
                    collect_sources(of.data + offset(mine, k - 1), room_of(mine));
                    reduction->run({&result, 1}, sources_, count(mine, k - 1));
                }
                if (all != nullptr) {
                    writer_.copy(reduced, result, bytes(mine, k - 1));
                }
            }
            if (k == pieces && all == nullptr) {
                break;
            }
            for (int part = 0; part < size() && reduction != nullptr; ++part) {
                if (part != mine && k < pieces && count(part, k) > 0) {
                    writer_.copy(slot + room_of(part), of.data + offset(part, k), bytes(part, k));
                }
            }
            meet(call);
            for (int part = 0; part < size() && all != nullptr && k > 0; ++part) {
                if (part != mine && count(part, k - 1) > 0) {
                    std::memcpy(all + offset(part, k - 1),
                                rounds_.published_slot(part) + room_of(size()), bytes(part, k - 1));
                }
            }
        }
    }

    Group& group_;
    const Calls& calls_;
    SharedMemory memory_;
    DoubleBufferedExchange<Call> rounds_;
    CollectiveLog<Call> record_;
    SharedWriter writer_;
    std::vector<const std::byte*> sources_;
};

} // namespace rtrain::comm
