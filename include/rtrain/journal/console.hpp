// SPDX-License-Identifier: Apache-2.0
/// @file
/// Console: says on standard error what people want to know at once: how validations ended, and why
/// training begins anew.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/journal/observer.hpp>

#include <string>

namespace rtrain::track {

class Console : public Observer {
public:
    [[nodiscard]] std::string name() const override { return "the console"; }

    void validated(const Validated& event) override {
        const checkpoint::ValidationRecord& record = event.record;
        if (!record.message.empty()) {
            console::say("validation of %s%s: %s", event.checkpoint.c_str(),
                         record.status == CheckpointStatus::validated ? "" : " failed",
                         record.message.c_str());
        }
    }

    void restarting(const Restarting& event) override {
        console::say("%s", event.what.c_str());
        if (event.lost_ranks) {
            console::say("going on with %d ranks", event.ranks);
        }
        console::say("%s", event.reason.c_str());
    }
};

} // namespace rtrain::track
