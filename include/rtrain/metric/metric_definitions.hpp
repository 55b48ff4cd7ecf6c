// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door metric.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/state/state_io.hpp>

#include <cstddef>
#include <utility>

namespace rtrain::metric {

RTRAIN_DOOR Metric::Metric(std::string kind, Tally seen)
    : kind_(std::move(kind)), label_(kind_), tally_(std::move(seen)) {
    tally_.clear();
}

RTRAIN_DOOR Metric::~Metric() = default;

RTRAIN_DOOR void Metric::merge(const Metric& next) {
    if (kind_ != next.kind_ || !tally_.is_like(next.tally_)) {
        throw wrong("RT-V44", "cannot be merged with ", next.label_,
                    kind_ == next.kind_ ? " with different options" : "",
                    "; merge metrics of one class with the same options");
    }
    tally_.merge(next.tally_);
}

RTRAIN_DOOR void Metric::save(StateWriter& out) const {
    rtrain::detail::Packer seen;
    tally_.pack(seen);
    seen.put_all(tally_.samples);
    out.value("metric", boost::json::value(kind_));
    out.bytes_of_rank("seen", rtrain::detail::to_bytes(seen.bytes()));
}

RTRAIN_DOOR void Metric::load(const StateReader& in) {
    const auto require = [&](bool is_ours) {
        if (!is_ours) {
            throw CheckpointError("RT-K3",
                                  rtrain::detail::concat("\"", in.prefix(),
                                                         "\" was saved by a different metric "
                                                         "than ",
                                                         label_,
                                                         ", or with different options; load "
                                                         "it into the same metric"));
        }
    };
    const auto* const kind = in.value("metric").if_string();
    require(kind != nullptr && *kind == kind_);
    Tally all = tally_.empty();
    for (const at::Tensor& saved : in.bytes_of_rank("seen")) {
        const std::string bytes = rtrain::detail::to_string(saved);
        Tally part = tally_.empty();
        require(bytes.size() >= part.packed_size());
        rtrain::detail::Unpacker seen(bytes);
        const std::size_t samples = part.unpack(seen);
        require(bytes.size() - part.packed_size() == samples * sizeof(double));
        part.samples.resize(samples);
        seen.take_all(part.samples);
        all.merge(part);
    }
    tally_ = std::move(all);
}

} // namespace rtrain::metric
