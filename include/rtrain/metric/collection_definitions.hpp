// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door collection.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/metric/collection.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// Converts dimension `dimension` of a value's numbers, starting at `next`; advances `next` past
/// them.
RTRAIN_DOOR boost::json::value to_json(const metric::Value& value, std::size_t dimension,
                                       std::size_t& next) {
    if (dimension == value.shape().size()) {
        const double number = value.numbers()[next++];
        return value.is_whole() ? boost::json::value(static_cast<std::int64_t>(number))
                                : boost::json::value(number);
    }
    boost::json::array items;
    for (std::int64_t i = 0; i < value.shape()[dimension]; ++i) {
        items.push_back(to_json(value, dimension + 1, next));
    }
    return items;
}

/// Concatenates the bytes of all ranks, in rank order; all have equal sizes.
RTRAIN_DOOR std::string gather_bytes(HookRanks& ranks, std::string_view mine) {
    const c10::NoGradGuard no_grad;
    return to_string(ranks.all_gather(to_bytes(mine)).contiguous());
}

} // namespace rtrain::detail

namespace rtrain::metric {

RTRAIN_DOOR Collection& Collection::add(const std::string& name, Metric& metric) & {
    const bool is_taken =
        std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.name == name; });
    if (is_taken || name.empty()) {
        throw Error("RT-V46", rtrain::detail::concat("\"", name, "\" cannot name a metric: it is ",
                                                     is_taken ? "taken" : "empty"));
    }
    metric.label_ = rtrain::detail::concat("metric \"", name, "\" (", metric.kind_, ')');
    entries_.push_back({name, &metric, dynamic_cast<Comparison*>(&metric)});
    checksum_ = checkpoint::crc32c(
        rtrain::detail::concat(checksum_, metric.label_, metric.tally_.packed_size()));
    return *this;
}

RTRAIN_DOOR void Collection::clear() {
    entries_.clear();
    checksum_ = 0;
}

RTRAIN_DOOR void Collection::update(const at::Tensor& predictions, const at::Tensor& targets) {
    for (const Entry& entry : entries_) {
        if (entry.comparison != nullptr) {
            entry.comparison->update(predictions, targets);
        }
    }
}

RTRAIN_DOOR void Collection::reset() {
    for (const Entry& entry : entries_) {
        entry.metric->reset();
    }
}

RTRAIN_DOOR boost::json::object Collection::compute() const {
    boost::json::object values;
    values.reserve(entries_.size());
    for (const Entry& entry : entries_) {
        std::size_t next = 0;
        values[entry.name] = rtrain::detail::to_json(entry.metric->compute(), 0, next);
    }
    return values;
}

RTRAIN_DOOR boost::json::object Collection::reduce(HookRanks& ranks) {
    if (ranks.size() > 1) {
        align(ranks);
        merge_ranks(ranks);
    }
    boost::json::object values = compute();
    reset();
    return values;
}

/// Each rank sends its checksum and all data of equal size on all ranks; then its samples, padded.
RTRAIN_DOOR void Collection::merge_ranks(HookRanks& ranks) {
    rtrain::detail::Packer head;
    rtrain::detail::Packer samples;
    head.put(checksum_);
    for (const Entry& entry : entries_) {
        entry.metric->tally_.pack(head);
        samples.put_all(entry.metric->tally_.samples);
    }
    const std::string heads = rtrain::detail::gather_bytes(ranks, head.bytes());
    const auto size = static_cast<std::size_t>(ranks.size());
    std::vector<std::vector<Tally>> seen(size); // by rank, by metric
    std::vector<std::size_t> sample_count(size);
    for (std::size_t rank = 0; rank < size; ++rank) {
        rtrain::detail::Unpacker in(
            std::string_view(heads).substr(rank * head.bytes().size(), head.bytes().size()));
        if (in.take<std::uint32_t>() != checksum_) {
            throw Error("RT-V46", rtrain::detail::concat(
                                      "the collections of rank ", ranks.rank(), " and rank ", rank,
                                      " differ; give all ranks the same metrics, with the same "
                                      "names, in the same order"));
        }
        for (const Entry& entry : entries_) {
            Tally& tally = seen[rank].emplace_back(entry.metric->tally_.empty());
            tally.samples.resize(tally.unpack(in));
            sample_count[rank] += tally.samples.size();
        }
    }
    const std::size_t most = std::ranges::max(sample_count) * sizeof(double);
    if (most > 0) {
        std::string mine = samples.bytes();
        mine.resize(most);
        const std::string all = rtrain::detail::gather_bytes(ranks, mine);
        for (std::size_t rank = 0; rank < size; ++rank) {
            rtrain::detail::Unpacker in(std::string_view(all).substr(rank * most, most));
            for (Tally& tally : seen[rank]) {
                in.take_all(tally.samples);
            }
        }
    }
    reset();
    for (const auto& of_rank : seen) {
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            entries_[i].metric->tally_.merge(of_rank[i]);
        }
    }
}

RTRAIN_DOOR void Collection::save(StateWriter& out) const {
    for (const Entry& entry : entries_) {
        StateWriter part = out.part(entry.name);
        entry.metric->save(part);
    }
}

RTRAIN_DOOR void Collection::load(const StateReader& in) {
    for (const Entry& entry : entries_) {
        entry.metric->load(in.part(entry.name));
    }
}

} // namespace rtrain::metric
