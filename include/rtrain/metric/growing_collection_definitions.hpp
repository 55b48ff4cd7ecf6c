// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door growing_collection.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/metric/growing_collection.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace rtrain::metric {

namespace internal {

[[nodiscard]] inline std::unique_ptr<Metric> new_aggregate(Reduction reduction) {
    switch (reduction) {
    case Reduction::sum:
        return std::make_unique<Sum>();
    case Reduction::min:
        return std::make_unique<Min>();
    case Reduction::max:
        return std::make_unique<Max>();
    default:
        return std::make_unique<Mean>();
    }
}

} // namespace internal

RTRAIN_DOOR void GrowingCollection::update(std::string_view name, double value, double weight,
                                           Reduction reduction) {
    Metric& metric = *member(name, reduction).metric;
    switch (reduction) {
    case Reduction::mean:
        static_cast<Mean&>(metric).update(value, weight);
        break;
    case Reduction::sum:
        static_cast<Sum&>(metric).update(value);
        break;
    case Reduction::min:
        static_cast<Min&>(metric).update(value);
        break;
    case Reduction::max:
        static_cast<Max&>(metric).update(value);
        break;
    }
}

/// Finds or adds a name. The collection lists all in alphabetical order, whichever rank added them.
RTRAIN_DOOR GrowingCollection::Member& GrowingCollection::member(std::string_view name,
                                                                 Reduction reduction) {
    if (const auto found = members_.find(name); found != members_.end()) {
        if (found->second.reduction != reduction) {
            throw Error("RT-V46", rtrain::detail::concat("\"", name,
                                                         "\" is used with two reductions; give "
                                                         "each of them a different name"));
        }
        return found->second;
    }
    Member& added =
        members_.emplace(std::string(name), Member{reduction, internal::new_aggregate(reduction)})
            .first->second;
    clear();
    for (auto& [known, member] : members_) {
        add(known, *member.metric);
    }
    return added;
}

RTRAIN_DOOR void GrowingCollection::align(HookRanks& ranks) {
    rtrain::detail::Packer names;
    for (const auto& [name, member] : members_) {
        names.put(name);
        names.put(static_cast<std::uint8_t>(member.reduction));
    }
    const at::Tensor mine =
        at::full({1}, std::int64_t{checkpoint::crc32c(names.bytes())}, at::kLong);
    if (ranks.all_gather(mine).eq(mine).all().item<bool>()) {
        return;
    }
    for (const std::string& theirs : rtrain::detail::all_gather(ranks, names.bytes())) {
        rtrain::detail::Unpacker in(theirs);
        while (!in.is_empty()) {
            const std::string name = in.take_text();
            (void)member(name, static_cast<Reduction>(in.take<std::uint8_t>()));
        }
    }
}

RTRAIN_DOOR void GrowingCollection::save(StateWriter& out) const {
    rtrain::detail::Packer seen;
    seen.put(members_.size());
    for (const auto& [name, member] : members_) {
        seen.put(name);
        seen.put(static_cast<std::uint8_t>(member.reduction));
        tally_of(*member.metric).pack(seen);
    }
    out.bytes_of_rank("seen", rtrain::detail::to_bytes(seen.bytes()));
}

RTRAIN_DOOR void GrowingCollection::load(const StateReader& in) {
    members_.clear();
    clear();
    for (const at::Tensor& saved : in.bytes_of_rank("seen")) {
        const std::string bytes = rtrain::detail::to_string(saved);
        rtrain::detail::Unpacker seen(bytes);
        for (auto left = seen.take<std::size_t>(); left > 0; --left) {
            const std::string name = seen.take_text();
            const auto reduction = static_cast<Reduction>(seen.take<std::uint8_t>());
            const std::unique_ptr<Metric> next = internal::new_aggregate(reduction);
            (void)tally_of(*next).unpack(seen);
            member(name, reduction).metric->merge(*next);
        }
    }
}

} // namespace rtrain::metric
