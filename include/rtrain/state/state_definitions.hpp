// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door state.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/state/module_state.hpp>
#include <rtrain/state/parameter_names.hpp>
#include <rtrain/state/state.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace rtrain {

RTRAIN_DOOR void State::save(checkpoint::Snapshot& snapshot) const {
    const checkpoint::ParameterNames names = parameter_names();
    for (const Entry& entry : entries_) {
        StateWriter out(snapshot, entry.name, &names);
        entry.save(out);
    }
}

RTRAIN_DOOR void State::load(const checkpoint::Snapshot& snapshot) const {
    const checkpoint::ParameterNames names = parameter_names();
    for (const Entry& entry : entries_) {
        detail::load_fitting(entry.name,
                             [&] { entry.load(StateReader(snapshot, entry.name, &names)); });
    }
}

RTRAIN_DOOR checkpoint::ParameterNames State::parameter_names() const {
    checkpoint::ParameterNames names;
    for (const Entry& entry : entries_) {
        if (entry.name_tensors) {
            entry.name_tensors(names);
        }
    }
    return names;
}

RTRAIN_DOOR void State::make_per_rank() {
    Entry& entry = entries_.back();
    entry.save = [save = std::move(entry.save)](StateWriter& out) { out.per_rank(save); };
    entry.load = [load = std::move(entry.load)](const StateReader& in) { in.per_rank(load); };
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
                                   const std::shared_ptr<torch::nn::Module>& module,
                                   std::function<void(StateWriter&)> save,
                                   std::function<void(const StateReader&)> load) {
    const bool has_own = save != nullptr;
    const auto own_save = [module, has_own, save = std::move(save),
                           is_plain = has_own](StateWriter& out) mutable {
        if (!std::exchange(is_plain, true)) { // checked once
            checkpoint::require_plain_module(*module);
        }
        checkpoint::save_module(*module, out);
        if (has_own) {
            out.value(checkpoint::own_state, true);
            StateWriter part = out.part(checkpoint::own_state);
            save(part);
        }
    };
    const auto own_load = [module, load = std::move(load)](const StateReader& in) {
        checkpoint::load_module(*module, in);
        if (load && in.has_value(checkpoint::own_state)) { // not in older checkpoints
            load(in.part(checkpoint::own_state));
        }
    };
    entries_.push_back({name, own_save, own_load, [module, name](auto& names) {
                            for (const auto& item : module->named_parameters()) {
                                names.add(name + "/" + item.key(), item.value());
                            }
                        }});
}

} // namespace rtrain
