// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on parts of different sizes: through shared memory within a node, by messages
/// between nodes.
#pragma once

#include <rtrain/comm/calls/arguments.hpp>
#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/part_messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/parts.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/node/transport.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// The result of Communicator::parts(), which must outlive it. All members are collective, with
/// the same sizes on all ranks, and throw like those of the communicator.
class PartCollectives {
public:
    PartCollectives(Group& all, Calls& calls, Transport& links)
        : all_(all), calls_(calls), links_(links) {}

    /// Sends every rank's part of `data`, which holds all parts, to all ranks. `element`: bytes.
    void all_gather(std::byte* data, const Parts& parts, std::size_t element = 1) {
        const Call call = begin(Collective::all_gather_parts, parts, element);
        if (links_.within_one_node()) {
            links_.node()->all_gather(call, parts, data, element);
        } else if (all_.size() > 1) {
            MessagePartAllGather messages(all_, data, parts, element);
            calls_.wait(all_, messages, call);
        }
    }

    /// Combines this rank's part of every rank's `data` into `own`, in the order of ranks.
    void reduce_scatter(const std::byte* data, const Parts& parts, std::byte* own,
                        const Combining& combining) {
        const Call call = begin(Collective::reduce_scatter_parts, parts, combining.element);
        if (links_.within_one_node()) {
            links_.node()->reduce_scatter(call, parts, data, own, combining);
        } else {
            MessagePartReduceScatter messages(all_, data, parts, combining);
            calls_.wait(all_, messages, call);
            messages.combine_into(own, combining);
        }
    }

    /// Returns the tensors of all ranks, by rank: of one dimension and equal type, with different
    /// numbers of elements.
    [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& part) {
        const Call call = checked(Collective::all_gather_parts, part);
        std::vector<std::int64_t> counts(static_cast<std::size_t>(all_.size()));
        counts[static_cast<std::size_t>(all_.rank())] = part.numel();
        all_gather(bytes_at(counts.data()), Parts(std::vector<std::int64_t>(counts.size(), 1)),
                   sizeof(std::int64_t));
        const Parts parts(std::move(counts));
        const at::Tensor gathered = at::empty({parts.elements()}, part.options());
        gathered.narrow(0, parts.begin(all_.rank()), part.numel()).copy_(part);
        all_gather(bytes_of(gathered), parts, c10::elementSize(call.type));
        return gathered.split_with_sizes(parts.counts());
    }

private:
    [[nodiscard]] static std::byte* bytes_at(std::int64_t* numbers) {
        return reinterpret_cast<std::byte*>(numbers);
    }
    [[nodiscard]] Call begin(Collective collective, const Parts& parts, std::size_t element) {
        return calls_.begin({.collective = collective,
                             .which = static_cast<std::uint16_t>(element),
                             .shape = hash_of(parts.counts()),
                             .elements = parts.elements()});
    }

    Group& all_;
    Calls& calls_;
    Transport& links_;
};

} // namespace rtrain::comm
