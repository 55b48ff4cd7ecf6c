// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of node_step.hpp.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/optimizer/node_copy.hpp>
#include <rtrain/model/optimizer/node_step.hpp>
#include <rtrain/model/parameters/parameter_hook.hpp>
#include <rtrain/model/parameters/recording.hpp>
#include <rtrain/model/sharded/plan/unit_order.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/state/optimizer_state.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <malloc.h>

namespace rtrain::detail {

/// True for a parameter that ranks may step in slices.
RTRAIN_DOOR bool may_be_sliced(const at::Tensor& parameter) {
    return parameter.is_cpu() && parameter.nbytes() >= NodeStep::least_bytes &&
           at::isFloatingType(parameter.scalar_type()) &&
           parameter.is_non_overlapping_and_dense() && NodeCopy::can_adopt(parameter);
}

template <class Visit>
void each_parameter(torch::optim::Optimizer& optimizer, const Visit& visit) {
    for (auto& group : optimizer.param_groups()) {
        for (const at::Tensor& parameter : group.params()) {
            visit(parameter, group);
        }
    }
}

struct SteppingRanks {
    comm::Communicator* ranks = nullptr; ///< null: this rank steps alone
    std::shared_ptr<const void> model;   ///< while it exists, ranks do
    bool always = false;                 ///< whatever the size
};
/// The ranks that have the same gradients of all large parameters.
RTRAIN_DOOR SteppingRanks stepping_ranks(torch::optim::Optimizer& optimizer) {
    AnyBackend* ranks = nullptr;
    SteppingRanks found;
    bool differs = Recording::current() != nullptr;
    each_parameter(optimizer, [&](const at::Tensor& parameter, auto& /*group*/) {
        if (!parameter.is_cpu() || parameter.nbytes() < NodeStep::least_bytes ||
            !parameter.grad().defined()) {
            return;
        }
        if (const auto listener = ParameterHook::listener(parameter)) {
            const auto here = listener->same_gradients();
            differs = differs || here.ranks == nullptr || !here.step_together.value_or(true) ||
                      (ranks != nullptr && ranks != here.ranks);
            ranks = here.ranks;
            found.model = found.model ? found.model : listener;
            found.always = found.always || here.step_together.value_or(false);
        }
    });
    auto* const all = differs || ranks == nullptr ? nullptr : ranks->communicator();
    found.ranks = all != nullptr && all->shares_memory() && all->local_size() > 1 ? all : nullptr;
    return found;
}

/// The parameters that ranks step in slices, and bytes of these and their moments.
RTRAIN_DOOR std::pair<std::vector<at::Tensor>, std::size_t>
sliced(torch::optim::Optimizer& optimizer, std::size_t moments) {
    std::vector<at::Tensor> parameters;
    std::size_t bytes = 0;
    each_parameter(optimizer, [&](const at::Tensor& parameter, auto& /*group*/) {
        if (may_be_sliced(parameter) && ParameterHook::listener(parameter) != nullptr) {
            parameters.push_back(parameter);
            bytes += (1 + moments) * parameter.nbytes();
        }
    });
    return {parameters, bytes};
}

/// A number that differs where ranks would not step the same; 0 if this one cannot step slices.
RTRAIN_DOOR std::uint64_t digest_of(torch::optim::Optimizer& optimizer, const NodeCopy& copy,
                                    std::size_t moments) {
    std::uint64_t digest = hash_of_nothing;
    bool can = moments <= copy.moments();
    each_parameter(optimizer, [&](const at::Tensor& parameter, auto& group) {
        const auto* const member = copy.find(parameter);
        if (member != nullptr && parameter.grad().defined()) {
            digest = hashed(digest, member->offset);
            digest = hashed(digest, std::bit_cast<std::uint64_t>(group.options().get_lr()));
            can = can && parameter.const_data_ptr() == copy.view(*member, 0);
        }
    });
    return can ? digest : 0;
}

RTRAIN_DOOR NodeStep::NodeStep() = default;
RTRAIN_DOOR NodeStep::NodeStep(NodeStep&& other) noexcept = default;
RTRAIN_DOOR NodeStep::~NodeStep() = default;

RTRAIN_DOOR bool NodeStep::begin(torch::optim::Optimizer& optimizer, std::size_t moments) {
    const auto [ranks, model, always] = stepping_ranks(optimizer);
    if (ranks == nullptr) {
        return false;
    }
    const UserCall::In in(UserCall::optimizer_step);
    if (model_.owner_before(model) || model.owner_before(model_)) { // prepared since, or first
        model_ = model;
        copy_ = nullptr;
        const auto [parameters, bytes] = sliced(optimizer, moments);
        if (bytes > 0 && (always || bytes >= least_bytes_of_all)) {
            share(*ranks, parameters, moments);
        }
    }
    if (copy_ == nullptr) {
        return false;
    }
    const bool together = copy_->begin(digest_of(optimizer, *copy_, moments));
    if (!together) {
        copy_->end(); // before the next digest
    }
    return together;
}

RTRAIN_DOOR void NodeStep::share(comm::Communicator& ranks,
                                 const std::vector<at::Tensor>& parameters, std::size_t moments) {
    try {
        auto copy = std::make_unique<NodeCopy>(ranks, parameters, moments);
        if (copy->begin(copy->try_pages() ? 1 : 0)) {
            copy->adopt();
            copy->end();
            copy_ = std::move(copy);
            ::malloc_trim(0); // frees the ranks' previous copies
        }
    } catch (const CommError& error) {
        if (!error.is("RT-X12")) {
            throw;
        }
        console::warn("rank %d: %s; each rank steps all parameters, which is slower", ranks.rank(),
                      error.what());
    }
}

RTRAIN_DOOR void NodeStep::end() {
    const UserCall::In in(UserCall::optimizer_step);
    copy_->end();
}

RTRAIN_DOOR void NodeStep::cut(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                               const Tensors& tensors) const {
    const auto* const member = copy_->find(parameter);
    if (member == nullptr) {
        return;
    }
    for (std::size_t i = 0; i < tensors.moments.size(); ++i) {
        at::Tensor& moment = tensors.moments[i];
        if (!moment.defined()) {
            continue;
        }
        if (moment.const_data_ptr() != copy_->view(*member, i + 1)) { // it is new, or loaded
            copy_->copy_slice(*member, i + 1,
                              static_cast<const std::byte*>(moment.const_data_ptr()));
            checkpoint::visit_optimizer_state(
                optimizer, parameter, [&](const char* /*name*/, at::Tensor& kept) {
                    kept = kept.is_same(moment) ? copy_->moment(*member, i + 1) : kept;
                });
        }
        moment = member->slices[i + 1];
    }
    const at::Tensor& gradient = tensors.gradient;
    tensors.gradient =
        gradient.as_strided({member->elements}, {1}, gradient.storage_offset() + member->begin);
    tensors.parameter = member->slices[0];
}

} // namespace rtrain::detail
