// SPDX-License-Identifier: Apache-2.0
/// @file
/// Uneven inputs: ranks whose data end early take part in what the others still average, without
/// contributing. Like torch.distributed.algorithms.Join, but ranks that have ended also make the
/// others' optimizer steps, so that optimizers stay the same on all ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options/gradient_hook.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rtrain {

namespace detail {

/// Agrees on what ranks do together, each time one of them would communicate about a model.
class JoinedRanks {
public:
    enum class Step : std::uint8_t { none, buffers, backward };
    struct Next {
        Step step = Step::none; ///< of the ranks that still train; none: all have ended
        std::size_t model = 0;
        int active = 0;       ///< the number of ranks that still train
        int first_active = 0; ///< the lowest of these
    };

    /// `ranks` outlives this object.
    explicit JoinedRanks(HookRanks& ranks) : ranks_(ranks) {}

    /// Announces what this rank is about to do, or none; returns what ranks that still train do.
    /// *Collective.* Throws ModelError [RT-M27] when they do different things.
    [[nodiscard]] Next announce(Step step, std::size_t model) {
        const std::int64_t mine =
            step == Step::none ? 0 : static_cast<std::int64_t>(2 * model) + static_cast<int>(step);
        const at::Tensor all = ranks_.all_gather(at::full({1}, mine, at::kLong)).view({-1});
        std::int64_t common = 0;
        Next next;
        for (int rank = ranks_.size(); rank-- > 0;) {
            const auto theirs = all[rank].item<std::int64_t>();
            if (theirs == 0) {
                continue;
            }
            if (common != 0 && common != theirs) {
                throw ModelError(
                    "RT-M27", "ranks under join() run different operations at the same time, such "
                              "as a forward and a backward, or passes of two models; run the same "
                              "operations in each step on every rank until its data end");
            }
            common = theirs;
            next.first_active = rank;
            ++next.active;
        }
        if (common != 0) {
            next.step = common % 2 != 0 ? Step::buffers : Step::backward;
            next.model = static_cast<std::size_t>((common - 1) / 2);
        }
        return next;
    }

private:
    HookRanks& ranks_;
};

/// A model that ranks train for different numbers of steps.
class Joinable {
public:
    Joinable() = default;
    Joinable(const Joinable&) = delete;
    Joinable& operator=(const Joinable&) = delete;
    virtual ~Joinable() = default;

    /// The ranks' collectives; null for one rank.
    [[nodiscard]] virtual HookRanks* ranks() = 0;
    /// Makes the model announce what it does, as number `model`; null: no longer.
    virtual void set_join(JoinedRanks* joined, std::size_t model) = 0;
    /// Takes part in the others' operation. *Collective.*
    virtual void shadow(const JoinedRanks::Next& next) = 0;
};

} // namespace detail

/// Runs `train`, a loop whose number of steps may differ between ranks. Gradients are averaged over
/// the ranks that still run it. A rank that has ended shadows the others: for each pass that they
/// average, it gets the same gradients and calls `step`, which makes the optimizer's step; it gets
/// the model's index in `models` if it takes a number. So all ranks leave with the same model and
/// optimizer. *Collective.*
///
/// @code
/// rtrain::join(
///     [&] {
///         for (auto& batch : my_batches) { // ranks may have different numbers
///             optimizer.zero_grad();
///             loss_of(model(batch)).backward();
///             optimizer.step();
///         }
///     },
///     [&] { optimizer.step(); }, model);
/// @endcode
///
/// Each averaged pass is followed by one step. `train` contains no other collectives (reports,
/// barriers, SyncBatchNorm), and freezes nothing. `models` are prepared by the same worker, for the
/// same ranks, without PowerSgd, Custom and reduction_order micro_batches (ConfigError RT-C12).
template <std::invocable Train, class Step, class... Models>
requires(sizeof...(Models) > 0 &&
         (std::invocable<Step&> ||
          std::invocable<Step&, std::size_t>)) void join(Train&& train, Step&& step,
                                                         Models&... models) {
    const std::vector<std::shared_ptr<detail::Joinable>> joined{models.prepared()...};
    HookRanks* const ranks = joined.front()->ranks();
    if (ranks == nullptr) {
        train();
        return;
    }
    detail::JoinedRanks talk(*ranks);
    const auto set_all = [&joined](detail::JoinedRanks* to) {
        for (std::size_t i = 0; i < joined.size(); ++i) {
            joined[i]->set_join(to, i);
        }
    };
    const std::shared_ptr<void> guard(nullptr, [&](void*) { set_all(nullptr); });
    set_all(&talk);
    train();
    const UserCall::In in(UserCall::join);
    using Does = detail::JoinedRanks::Step;
    for (auto next = talk.announce(Does::none, 0); next.step != Does::none;
         next = talk.announce(Does::none, 0)) {
        joined.at(next.model)->shadow(next);
        if (next.step != Does::backward) {
            continue;
        }
        if constexpr (std::invocable<Step&, std::size_t>) {
            step(next.model);
        } else {
            step();
        }
    }
}

} // namespace rtrain
