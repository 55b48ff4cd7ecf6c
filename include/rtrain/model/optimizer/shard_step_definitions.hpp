// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door step_parts.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/optimizer/disk_optimizer_state.hpp>
#include <rtrain/model/optimizer/shard_step.hpp>
#include <rtrain/model/parameters/optimizer_parameter_registry.hpp>
#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/state/optimizer_state.hpp>

#include <ATen/Functions.h>
#include <torch/optim.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <typeinfo>
#include <utility>
#include <variant>

namespace rtrain::detail {

/// True if a step over parts of parameters equals one over the whole. A class derived from one of
/// these may step differently.
RTRAIN_DOOR bool steps_by_element(torch::optim::Optimizer& optimizer) {
    using namespace torch::optim;
    const std::type_info& type = checkpoint::class_of(optimizer);
    return type == typeid(SGD) || type == typeid(Adam) || type == typeid(AdamW) ||
           type == typeid(Adagrad) || type == typeid(RMSprop);
}

RTRAIN_DOOR ShardStep::ShardStep(torch::optim::Optimizer& optimizer, const SharedModels& models) {
    bool others = false; // parameters that backward does not step
    OptimizerParameterRegistry::Set all;
    for (auto& group : optimizer.param_groups()) {
        for (at::Tensor& parameter : group.params()) {
            bool is_stepped_in_backward = false;
            for (const auto& model : models) {
                const auto index = model->find(parameter);
                if (!index) {
                    continue;
                }
                if (!steps_by_element(optimizer)) {
                    throw ModelError(
                        "RT-M45",
                        "this optimizer cannot step a sharded model: a rank has only some elements "
                        "of each parameter, and only torch::optim's SGD, Adam, AdamW, Adagrad and "
                        "RMSprop are known to step each element independently; use one of these, "
                        "or prepare the model with DataParallelOptions");
                }
                const at::Tensor part = model->part(*index);
                checkpoint::cut_optimizer_state(optimizer, parameter, part,
                                                *model->find_part(part));
                model->take(*index, link_);
                parameter = part;
                if (std::find(models_.begin(), models_.end(), model) == models_.end()) {
                    models_.push_back(model);
                }
                if (const auto* disk = std::get_if<offload::Disk>(&model->offload());
                    disk != nullptr && !disk_) {
                    disk_ = std::make_shared<DiskOptimizerState>(disk->directory);
                }
                is_stepped_in_backward = model->steps_in_backward();
                break;
            }
            others = others || !is_stepped_in_backward;
            all.insert(parameter.unsafeGetTensorImpl());
        }
    }
    OptimizerParameterRegistry::add(link_, std::move(all));
    if (others && steps_in_backward()) {
        throw ConfigError(
            "RT-C12", "an optimizer has parameters of a model with step_in_backward, and others, "
                      "which backward would also step; give the others a separate optimizer");
    }
}

RTRAIN_DOOR bool ShardStep::steps_in_backward() const {
    return std::any_of(models_.begin(), models_.end(),
                       [](const auto& model) { return model->steps_in_backward(); });
}

RTRAIN_DOOR void ShardStep::run(torch::optim::Optimizer& optimizer,
                                const std::function<void()>& step) const {
    if (disk_) {
        disk_->step(optimizer, step);
    } else {
        step();
    }
}

RTRAIN_DOOR void ShardStep::settle(torch::optim::Optimizer& optimizer,
                                   const at::Tensor& parameter) const {
    if (disk_) {
        disk_->settle(optimizer, parameter);
    }
}

RTRAIN_DOOR void ShardStep::begin_step(torch::optim::Optimizer& optimizer) const {
    const UserCall::In in(UserCall::optimizer_step);
    process::DeferredCopy::finish_all(); // of all ranks: they synchronize in it
    for (const auto& group : optimizer.param_groups()) {
        for (const at::Tensor& parameter : group.params()) {
            const bool is_whole =
                std::any_of(models_.begin(), models_.end(),
                            [&](const auto& model) { return model->find(parameter).has_value(); });
            if (is_whole ||
                (parameter.is_cpu() && parameter.numel() > 0 &&
                 process::ReadOnlyMemory::writable(parameter.const_data_ptr()) != nullptr)) {
                throw ModelError("RT-M42", "a group of the optimizer holds a parameter of a "
                                           "sharded model as a whole; give optimizers all groups "
                                           "before worker.prepare(optimizer), and prepare the "
                                           "model first");
            }
        }
    }
    const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
    for (const auto& model : models_) {
        model->begin_step();
    }
}

RTRAIN_DOOR void ShardStep::end_step() const {
    const UserCall::In in(UserCall::optimizer_step);
    const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
    for (const auto& model : models_) {
        model->end_step();
    }
}

RTRAIN_DOOR void ShardStep::zero_gradients() const {
    for (const auto& model : models_) {
        model->drop_gradients(link_);
    }
}

RTRAIN_DOOR bool ShardStep::on_any_rank(bool here) const {
    for (const auto& model : models_) {
        at::Tensor flag = at::full({1}, here ? 1 : 0, at::kInt);
        model->backend().all_reduce(flag, ReduceOp::max);
        here = flag.item<int>() != 0;
    }
    return here;
}

RTRAIN_DOOR const checkpoint::PartOf* ShardStep::part_of(const at::Tensor& parameter) const {
    for (const auto& model : models_) {
        if (const auto* const part = model->find_part(parameter)) {
            return part;
        }
    }
    return nullptr;
}

RTRAIN_DOOR at::Tensor ShardStep::whole_of(const at::Tensor& parameter) const {
    for (const auto& model : models_) {
        if (const auto whole = model->find_whole(parameter); whole.defined()) {
            return whole;
        }
    }
    return parameter;
}

} // namespace rtrain::detail
