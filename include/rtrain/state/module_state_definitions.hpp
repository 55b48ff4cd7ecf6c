// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door module_state.hpp.
#pragma once

#include <rtrain/backend/writable.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/state/exact_parts.hpp>
#include <rtrain/state/module_state.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/state/unknown_class.hpp>

#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include <boost/json/array.hpp>

#include <set>
#include <string>
#include <typeinfo>
#include <utility>

namespace rtrain::checkpoint {

/// Name of the value that lists the frozen parameters.
inline constexpr const char* frozen_parameters = "frozen";

namespace modules {

/// A private member, accessed through explicit instantiation; see scheduler_state_definitions.hpp.
template <auto Member>
struct RevealArchive {
    friend torch::jit::Module& reveal(torch::serialize::OutputArchive& archive) {
        return archive.*Member;
    }
};
torch::jit::Module& reveal(torch::serialize::OutputArchive& archive);
template struct RevealArchive<&torch::serialize::OutputArchive::module_>;

/// Throws if `saved`, the archive of `module`, has entries other than parameters and buffers.
inline void require_plain(const torch::nn::Module& module, const torch::jit::Module& saved) {
    const auto parameters = module.named_parameters(/*recurse=*/false);
    const auto buffers = module.named_buffers(/*recurse=*/false);
    const auto children = module.named_children();
    for (const auto& attribute : saved.type()->getAttributes()) {
        const std::string& name = attribute.getName();
        if (const auto* const child = children.find(name)) {
            require_plain(**child, saved.attr(name).toModule());
        } else if (!parameters.contains(name) && !buffers.contains(name)) {
            throw unknown_class(typeid(module),
                                detail::concat("a module that rtrain can save: it overrides "
                                               "torch's save(), which writes \"",
                                               name, "\" in addition to parameters and buffers"));
        }
    }
}

} // namespace modules

/// State other than parameters and buffers is visible only if the module overrides torch's save().
RTRAIN_DOOR void require_plain_module(const torch::nn::Module& module) {
    torch::serialize::OutputArchive archive;
    try {
        module.save(archive); // does not copy tensors
    } catch (const c10::Error&) {
        return; // torch cannot save it, which says nothing about its state
    }
    modules::require_plain(module, modules::reveal(archive));
}

RTRAIN_DOOR void save_module(const torch::nn::Module& module, StateWriter& out) {
    boost::json::array frozen;
    for (const auto& item : module.named_parameters()) {
        StateWriter to = out.compared(out.is_prepared(item.value()) ? detail::Comparison::none
                                                                    : detail::Comparison::sample);
        if (const auto part = ExactParts::find(item.value())) {
            to.elements(item.key(), part->of.shape, part->of.begin,
                        in_rows(part->of, part->elements));
        } else {
            to.tensor(item.key(), item.value());
        }
        if (out.is_stepped(item.value())) {
            out.late(item.key());
        }
        if (!item.value().requires_grad()) {
            frozen.emplace_back(item.key());
        }
    }
    out.value(frozen_parameters, std::move(frozen));
    for (const auto& item : module.named_buffers()) {
        if (item.value().defined()) {
            out.tensor_of_rank_0(item.key(), item.value());
        }
    }
}

/// Restores which parameters train, as in the checkpoint. In a run that begins with another run's
/// checkpoint, the program's settings stay.
RTRAIN_DOOR void load_frozen(torch::nn::Module& module, const StateReader& in) {
    if (!in.has_value(frozen_parameters)) { // an older checkpoint
        return;
    }
    std::set<std::string> frozen;
    for (const auto& name : in.value(frozen_parameters).as_array()) {
        frozen.emplace(name.as_string());
    }
    for (auto& item : module.named_parameters()) {
        const bool trains = !frozen.contains(item.key());
        if (trains == item.value().requires_grad()) {
            continue;
        }
        if (!in.snapshot().same_run) {
            console::warn("\"%s%s\" %s in the checkpoint of the other run, but not in this "
                          "program; the program's setting is used, also for other such parameters",
                          in.prefix().c_str(), item.key().c_str(), trains ? "trains" : "is frozen");
            return;
        }
        item.value().set_requires_grad(trains);
    }
}

/// Copies into the module's own tensors. Throws CheckpointError [RT-K3] naming the first tensor
/// that is missing, has a different shape, or is not in the module; then nothing is changed.
RTRAIN_DOOR void load_module(torch::nn::Module& module, const StateReader& in) {
    const torch::NoGradGuard no_grad;
    auto targets = module.named_parameters();
    for (const auto& item : module.named_buffers()) {
        if (item.value().defined()) {
            targets.insert(item.key(), item.value());
        }
    }
    for (const auto& item : targets) {
        const at::Tensor saved = in.tensor(item.key());
        if (saved.sizes() != item.value().sizes()) {
            throw CheckpointError("RT-K3", detail::concat("\"", in.prefix(), item.key(), "\" is ",
                                                          saved.sizes(), " in the checkpoint, but ",
                                                          item.value().sizes(), " in the model"));
        }
    }
    const auto& saved = in.snapshot().tensors;
    for (auto next = saved.lower_bound(in.prefix());
         next != saved.end() && next->first.starts_with(in.prefix()); ++next) {
        const std::string name = next->first.substr(in.prefix().size());
        if (!targets.contains(name) && !name.starts_with(own_state)) {
            throw CheckpointError("RT-K3", detail::concat("the checkpoint holds \"", next->first,
                                                          "\", which the model does not have"));
        }
    }
    for (auto& item : targets) {
        const auto part = ExactParts::find(item.value());
        if (!part || !part->loaded) {
            detail::writable(item.value()).copy_(in.tensor(item.key()));
        }
        if (part) {
            const auto& [of, elements, loaded] = *part;
            detail::writable(elements).copy_(in_memory(
                of, in.elements(item.key(), of.shape, of.begin, of.begin + elements.numel())));
            if (loaded) {
                loaded();
            }
        }
    }
    load_frozen(module, in);
}

} // namespace rtrain::checkpoint
