// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door scheduler_state.hpp. torch gives no access to a scheduler's counters, hence the
/// member pointers.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/scheduler_state.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/state/unknown_class.hpp>

#include <torch/optim.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <typeinfo>

namespace rtrain::checkpoint {

namespace schedulers {

/// A protected member, accessed as in a derived class.
struct StepCount : torch::optim::LRScheduler {
    static unsigned& of(torch::optim::LRScheduler& scheduler) {
        return scheduler.*(&StepCount::step_count_);
    }
};

/// Private members, accessed through explicit instantiation, which is exempt from access checks
/// ([temp.spec.general]).
template <class Tag, auto Member>
struct Reveal {
    friend auto& reveal(Tag /*tag*/, torch::optim::ReduceLROnPlateauScheduler& scheduler) {
        return scheduler.*Member;
    }
};
struct Best {
    friend auto& reveal(Best, torch::optim::ReduceLROnPlateauScheduler&);
};
struct Cooldown {
    friend auto& reveal(Cooldown, torch::optim::ReduceLROnPlateauScheduler&);
};
struct LastEpoch {
    friend auto& reveal(LastEpoch, torch::optim::ReduceLROnPlateauScheduler&);
};
struct BadEpochs {
    friend auto& reveal(BadEpochs, torch::optim::ReduceLROnPlateauScheduler&);
};
template struct Reveal<Best, &torch::optim::ReduceLROnPlateauScheduler::best>;
template struct Reveal<Cooldown, &torch::optim::ReduceLROnPlateauScheduler::cooldown_counter>;
template struct Reveal<LastEpoch, &torch::optim::ReduceLROnPlateauScheduler::last_epoch>;
template struct Reveal<BadEpochs, &torch::optim::ReduceLROnPlateauScheduler::num_bad_epochs>;

} // namespace schedulers

RTRAIN_DOOR void require_own_class(const torch::optim::LRScheduler& scheduler) {
    if (typeid(scheduler) != typeid(torch::optim::StepLR)) {
        throw unknown_class(typeid(scheduler), "a scheduler that rtrain can save (StepLR and "
                                               "ReduceLROnPlateauScheduler of torch::optim)");
    }
}
RTRAIN_DOOR void require_own_class(const torch::optim::ReduceLROnPlateauScheduler& scheduler) {
    if (typeid(scheduler) != typeid(torch::optim::ReduceLROnPlateauScheduler)) {
        throw unknown_class(typeid(scheduler), "a scheduler that rtrain can save (StepLR and "
                                               "ReduceLROnPlateauScheduler of torch::optim)");
    }
}

RTRAIN_DOOR void save_scheduler(torch::optim::LRScheduler& scheduler, StateWriter& out) {
    out.value("step_count", schedulers::StepCount::of(scheduler));
}
RTRAIN_DOOR void load_scheduler(torch::optim::LRScheduler& scheduler, const StateReader& in) {
    schedulers::StepCount::of(scheduler) = in.value("step_count").to_number<unsigned>();
}

RTRAIN_DOOR void save_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                StateWriter& out) {
    using namespace schedulers;
    const double best = reveal(Best{}, scheduler);
    out.tensor("best",
               at::scalar_tensor(best, at::kDouble)); // may be infinite, which is not a JSON number
    out.value("cooldown_counter", reveal(Cooldown{}, scheduler));
    out.value("last_epoch", reveal(LastEpoch{}, scheduler));
    out.value("num_bad_epochs", reveal(BadEpochs{}, scheduler));
}
RTRAIN_DOOR void load_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                const StateReader& in) {
    using namespace schedulers;
    reveal(Best{}, scheduler) = static_cast<float>(in.tensor("best").item<double>());
    reveal(Cooldown{}, scheduler) = in.value("cooldown_counter").to_number<int>();
    reveal(LastEpoch{}, scheduler) = in.value("last_epoch").to_number<int>();
    reveal(BadEpochs{}, scheduler) = in.value("num_bad_epochs").to_number<int>();
}

} // namespace rtrain::checkpoint
