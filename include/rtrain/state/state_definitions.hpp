// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door state.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/state_files.hpp>
#include <rtrain/checkpoint/verify.hpp>
#include <rtrain/state/object_state.hpp>
#include <rtrain/state/state.hpp>

namespace rtrain {

RTRAIN_DOOR void State::save(checkpoint::Snapshot& snapshot) const {
    for (const Entry& entry : entries_) {
        StateWriter out(snapshot, entry.name);
        entry.save(out);
    }
}

RTRAIN_DOOR void State::load(const checkpoint::Snapshot& snapshot) const {
    for (const Entry& entry : entries_) {
        entry.load(StateReader(snapshot, entry.name));
    }
}

RTRAIN_DOOR void State::load_from(const Checkpoint& checkpoint) const {
    (void)checkpoint::verify(checkpoint.as_directory());
    load(checkpoint::read_state(checkpoint.as_directory()));
}

RTRAIN_DOOR void State::check_name(const std::string& name) const {
    constexpr const char* allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    bool taken = name == reserved;
    for (const Entry& entry : entries_) {
        taken = taken || entry.name == name;
    }
    if (taken || name.empty() || name.find_first_not_of(allowed) != std::string::npos) {
        throw CheckpointError("RT-K8", detail::concat("\"", name,
                                                      "\" cannot name a part of the "
                                                      "state: ",
                                                      taken ? "it is taken"
                                                            : "use letters, digits, '.', '_', "
                                                              "'-'"));
    }
}

RTRAIN_DOOR void State::add_module(const std::string& name,
                                   const std::shared_ptr<torch::nn::Module>& module) {
    entries_.push_back({name, [module](StateWriter& out) { checkpoint::save_module(*module, out); },
                        [module](const StateReader& in) { checkpoint::load_module(*module, in); }});
}

} // namespace rtrain
