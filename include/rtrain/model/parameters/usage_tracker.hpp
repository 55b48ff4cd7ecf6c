// SPDX-License-Identifier: Apache-2.0
/// @file
/// UsageTracker: which parameters of a prepared model train, and which gradients have arrived.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/parameters/gradient_errors.hpp>
#include <rtrain/model/parameters/parameter_check.hpp>
#include <rtrain/model/parameters/require_same.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::detail {

class UsageTracker {
public:
    /// `parameters` outlive this object.
    explicit UsageTracker(const std::vector<NamedParameter>& parameters)
        : parameters_(parameters), trains_(parameters.size()), seen_(parameters.size(), false),
          used_(parameters.size(), false) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            trains_[i] = parameters[i].tensor.requires_grad();
        }
    }

    /// True for each parameter that trains in the current pass.
    [[nodiscard]] const std::vector<bool>& training() const noexcept { return trains_; }
    [[nodiscard]] bool trains(std::size_t index) const { return trains_[index]; }
    /// True if its hook ran since gradients were last averaged; after exchange_used(), on some
    /// rank.
    [[nodiscard]] bool is_used(std::size_t index) const { return used_[index]; }
    void set_used(std::size_t index, bool used) { used_[index] = used; }
    void forget_used() { std::fill(used_.begin(), used_.end(), false); }

    /// True if its hook ran in this pass.
    [[nodiscard]] bool is_seen(std::size_t index) const { return seen_[index]; }
    [[nodiscard]] bool are_all_seen() const { return seen_ == trains_; }
    void begin_pass() { std::fill(seen_.begin(), seen_.end(), false); }

    /// Throws ModelError: RT-M24 if the parameter did not train when the pass began, RT-M4 if it
    /// was seen before.
    void mark_seen(std::size_t index) {
        if (!trains_[index]) {
            throw ModelError("RT-M24",
                             concat("requires_grad of parameter \"", parameters_[index].name,
                                    "\" has changed while backward ran; change it between "
                                    "two steps"));
        }
        if (seen_[index]) {
            throw ModelError("RT-M4",
                             concat("the gradient of parameter \"", parameters_[index].name,
                                    "\" became ready twice in one backward pass, as when "
                                    "two checkpointed pieces of the model share it; let "
                                    "one piece hold it, or run such passes under no_sync()"));
        }
        seen_[index] = true;
    }

    /// Follows parameters that are frozen and unfrozen between two passes: calls `changed(index)`
    /// for each. *Collective* when there are some; throws ModelError [RT-M24] unless all ranks then
    /// train the same parameters.
    template <class Changed>
    void follow_requires_grad(AnyBackend& backend, Changed&& changed) {
        std::optional<std::size_t> first;
        for (std::size_t i = 0; i < trains_.size(); ++i) {
            if (const bool trains = parameters_[i].tensor.requires_grad(); trains != trains_[i]) {
                first = first.value_or(i);
                trains_[i] = trains;
                changed(i);
            }
        }
        if (!first) {
            return;
        }
        at::Tensor flags = at::empty({static_cast<std::int64_t>(trains_.size())}, at::kByte);
        std::copy(trains_.begin(), trains_.end(), flags.mutable_data_ptr<std::uint8_t>());
        require_same(backend, "RT-M24", checksum_of(flags), [&] {
            return concat("requires_grad of parameter \"", parameters_[*first].name,
                          "\" has become ", trains_[*first] ? "true" : "false", " on rank ",
                          backend.rank(),
                          ", but ranks do not train the same parameters; freeze and "
                          "unfreeze alike on all ranks");
        });
    }

    /// Throws ModelError [RT-M3] when a trainable parameter was not seen.
    void require_all_seen(int rank) const {
        if (!are_all_seen()) {
            throw_unused(parameters_, trains_, seen_, rank);
        }
    }

    /// Marks parameters as used that some rank has used. *Collective.*
    void exchange_used(AnyBackend& backend) {
        at::Tensor used = at::empty({static_cast<std::int64_t>(used_.size())}, at::kInt);
        int* const flags = used.mutable_data_ptr<int>();
        std::copy(used_.begin(), used_.end(), flags);
        backend.all_reduce(used, ReduceOp::max);
        std::copy(flags, flags + used_.size(), used_.begin());
    }

private:
    const std::vector<NamedParameter>& parameters_;
    std::vector<bool> trains_;
    std::vector<bool> seen_;
    std::vector<bool> used_;
};

} // namespace rtrain::detail
