// SPDX-License-Identifier: Apache-2.0
/// @file
/// Console: says on standard error what people want to know at once: how validations ended, and why
/// training begins anew.
#pragma once

#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/journal/observer.hpp>

#include <cstdio>
#include <string>

namespace rtrain::track {

class Console : public Observer {
public:
    [[nodiscard]] std::string name() const override { return "the console"; }

    void validated(const Validated& event) override {
        const checkpoint::ValidationRecord& record = event.record;
        if (!record.message.empty()) {
            std::fprintf(stderr, "rtrain: validation of %s%s: %s\n", event.checkpoint.c_str(),
                         record.status == CheckpointStatus::validated ? "" : " failed",
                         record.message.c_str());
        }
    }

    void restarting(const Restarting& event) override {
        std::fprintf(stderr, "rtrain: %s\n", event.what.c_str());
        if (event.lost_ranks) {
            std::fprintf(stderr, "rtrain: going on with %d ranks\n", event.ranks);
        }
        std::fprintf(stderr, "rtrain: %s\n", event.reason.c_str());
    }
};

} // namespace rtrain::track
