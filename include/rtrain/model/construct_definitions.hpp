// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door construct.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/construct.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <mutex>

namespace rtrain::detail {

/// While it lives, this thread's operators compute shapes, but no values: initialisers leave the
/// memory of a module alone, and results have none.
class WithoutValues {
    c10::impl::IncludeDispatchKeyGuard guard_{c10::DispatchKeySet(c10::DispatchKey::Meta)};
};

/// Allocates memory for a tensor computed without values. The module still holds the same tensor,
/// which set_data() does not allow between devices.
inline void give_memory(const at::Tensor& tensor) {
    if (tensor.is_meta()) {
        const at::Tensor memory =
            at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
        tensor.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
    }
}

/// Replaces the memory of a module that was constructed with values by untouched memory.
inline void forget_values(torch::nn::Module& module) {
    for (at::Tensor& parameter : module.parameters()) {
        parameter.set_data(at::empty_like(parameter, parameter.options().requires_grad(false)));
    }
}

/// Returns whether `make` succeeded without values.
inline bool make_without_values(const std::function<std::shared_ptr<torch::nn::Module>()>& make) {
    try {
        std::shared_ptr<torch::nn::Module> module;
        {
            const WithoutValues guard;
            module = make();
        }
        for (const at::Tensor& parameter : module->parameters()) {
            give_memory(parameter);
        }
        for (const at::Tensor& buffer : module->buffers()) {
            give_memory(buffer);
        }
        return true;
    } catch (const std::exception&) {
        return false; // make() needs values, or fails; a call with values shows which
    }
}

/// Gives all ranks the state of torch's generator after the first rank's constructor.
inline void share_generator(HookRanks& ranks) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    at::Tensor state;
    {
        const std::scoped_lock lock(generator.mutex());
        state = generator.get_state();
    }
    ranks.broadcast(state, 0);
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state);
}

RTRAIN_DOOR void construct_once(const std::shared_ptr<AnyBackend>& ranks,
                                const DataParallelOptions& options,
                                const std::function<std::shared_ptr<torch::nn::Module>()>& make) {
    const auto members = options.group ? ranks->over(options.group) : ranks;
    bool is_made = false;
    succeed_together(*members, [&] {
        if (!options.ignore.empty()) {
            throw ConfigError("RT-C12", "construct() makes values on one rank only, but \"ignore\" "
                                        "names some that each rank keeps for itself; make the "
                                        "model on all ranks, and pass it to prepare()");
        }
        if (members->rank() == 0) {
            static_cast<void>(make());
            is_made = true;
        } else {
            is_made = make_without_values(make);
        }
    });
    if (members->size() == 1) {
        return;
    }
    at::Tensor turns = at::full({1}, is_made ? 0 : members->rank() + 1, at::kLong);
    members->all_reduce(turns, ReduceOp::max);
    // In turns, so that a node needs memory for one more model, and not for one more per rank.
    for (std::int64_t turn = 0; turn < turns.item<std::int64_t>(); ++turn) {
        succeed_together(*members, [&] {
            if (!is_made && members->rank() == turn) {
                forget_values(*make());
            }
        });
    }
    share_generator(*members);
}

} // namespace rtrain::detail
