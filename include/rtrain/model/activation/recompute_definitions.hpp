// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door recompute.hpp.
#pragma once

#include <rtrain/backend/autocast_state.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/activation/in_place_write_log.hpp>
#include <rtrain/model/activation/random_states.hpp>
#include <rtrain/model/activation/recompute.hpp>
#include <rtrain/model/activation/recompute_slot.hpp>

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// One call of recompute(). Lives as long as a node that saved a tensor in it.
class RecomputeRegion : public std::enable_shared_from_this<RecomputeRegion> {
public:
    /// While it lives, autograd saves through hooks of this region, or of `recomputation`.
    class Saving {
    public:
        Saving(RecomputeRegion& of, Recomputation* again)
            : region(of), recomputation(again), before_(std::exchange(now(), this)) {}
        Saving(const Saving&) = delete;
        Saving& operator=(const Saving&) = delete;
        ~Saving() { now() = before_; }

        [[nodiscard]] static Saving*& now() noexcept {
            thread_local Saving* saving = nullptr;
            return saving;
        }

        RecomputeRegion& region;
        Recomputation* recomputation; ///< null in the first pass

    private:
        Saving* before_;
    };

    RecomputeRegion(const std::vector<at::Tensor>& inputs, RunOn again)
        : again_(std::move(again)), random_(inputs) {
        for (const at::Tensor& tensor : inputs) {
            inputs_.emplace_back(tensor);
        }
    }

    void run_first(const std::function<std::vector<at::Tensor>()>& first) {
        const std::uint64_t begin = at::sequence_number::peek();
        std::vector<at::Tensor> outputs;
        {
            const Saving saving(*this, nullptr);
            const InPlaceWriteLog::Watch watch(writes_);
            outputs = first();
        }
        const std::lock_guard lock(mutex_);
        random_.forget_unused();
        writes_.keep_all_but(outputs);
        for (RecomputeSlot& slot : slots_) {
            slot.edits.renew();
        }
        find_leaves(outputs, begin);
        is_complete_ = true;
    }

    /// Records a tensor of the first pass that is not kept; returns its number.
    [[nodiscard]] std::size_t drop(const at::Tensor& tensor) {
        const std::lock_guard lock(mutex_);
        slots_.emplace_back(tensor);
        return slots_.size() - 1;
    }
    /// Called when the tensor is no longer needed.
    void forget(std::size_t number) {
        const std::lock_guard lock(mutex_);
        slots_[number].is_wanted = false;
        slots_[number].again.reset();
    }
    [[nodiscard]] at::Tensor give(std::size_t number);

private:
    /// An argument of f. Saved as a node would: inside another region it is dropped as well.
    struct Input {
        explicit Input(const at::Tensor& tensor) {
            if (tensor.defined()) {
                edits.emplace(tensor);
                requires_grad = tensor.requires_grad();
                saved = torch::autograd::SavedVariable(at::Tensor(tensor.tensor_data()), false);
            }
        }
        std::optional<EditCheck> edits;
        bool requires_grad = false;
        torch::autograd::SavedVariable saved;
    };

    void find_leaves(const std::vector<at::Tensor>& outputs, std::uint64_t begin);
    void recompute(std::size_t asked);
    void require_unedited() const;
    void begin_task(int task);
    void end_task(int task);

    RunOn again_;
    RandomStates random_;
    AutocastState autocast_;
    InPlaceWriteLog writes_;
    std::vector<Input> inputs_;
    std::vector<EditCheck> leaves_; ///< parameters that f uses
    bool is_complete_ = false;      ///< the first pass

    /// Autograd has a thread for each device. Recursive, because nodes may be destroyed while f
    /// runs.
    std::recursive_mutex mutex_;
    std::vector<RecomputeSlot> slots_;
    int task_ = -1; ///< the graph task that `again` and `is_given` are of
    bool is_recomputing_ = false;
};

/// The placeholder for a tensor of the first pass.
struct DroppedTensor final : torch::autograd::SavedVariableHooks {
    explicit DroppedTensor(std::shared_ptr<RecomputeRegion> of) : region(std::move(of)) {}
    DroppedTensor(const DroppedTensor&) = delete;
    DroppedTensor& operator=(const DroppedTensor&) = delete;
    ~DroppedTensor() override {
        if (number) {
            region->forget(*number);
        }
    }
    void call_pack_hook(const at::Tensor& tensor) override { number = region->drop(tensor); }
    at::Tensor call_unpack_hook() override { return region->give(*number); }

    std::shared_ptr<RecomputeRegion> region;
    std::optional<std::size_t> number;
};

/// Keeps a tensor of f's second run, for a backward within f.
struct RecomputedTensor final : torch::autograd::SavedVariableHooks {
    explicit RecomputedTensor(Recomputation& of) : recomputation(of) {}
    void call_pack_hook(const at::Tensor& saved) override {
        tensor = at::Tensor(saved.tensor_data());
        recomputation.keep(saved);
    }
    at::Tensor call_unpack_hook() override { return tensor; }

    Recomputation& recomputation;
    at::Tensor tensor;
};

/// Torch's engine, extended by hooks for tensors that nodes save.
struct RecomputeEngine final : torch::autograd::Engine {
    std::unique_ptr<torch::autograd::SavedVariableHooks>
    get_default_saved_variable_hooks() override {
        const auto* const saving = RecomputeRegion::Saving::now();
        if (saving == nullptr) {
            return nullptr;
        }
        if (saving->recomputation != nullptr) {
            return std::make_unique<RecomputedTensor>(*saving->recomputation);
        }
        return std::make_unique<DroppedTensor>(saving->region.shared_from_this());
    }

    /// Throws ModelError [RT-M32] when the engine is neither torch's nor this one.
    static void install() {
        const torch::autograd::Engine* const now = &torch::autograd::Engine::get_default_engine();
        if (now == &get()) {
            return;
        }
        if (now != &torch::autograd::Engine::get_base_engine()) {
            throw ModelError(
                "RT-M32", "recompute() needs libtorch's own autograd engine, but this process uses "
                          "another, such as Python's; call the function without recompute()");
        }
        torch::autograd::set_default_engine_stub(&get);
    }

private:
    RecomputeEngine() = default;
    static torch::autograd::Engine& get() {
        static auto* const engine = new RecomputeEngine; // its threads may outlive main()
        return *engine;
    }
};

RTRAIN_DOOR void recompute_region(const std::vector<at::Tensor>& inputs, RunOn again,
                                  const std::function<std::vector<at::Tensor>()>& first) {
    RecomputeEngine::install();
    std::make_shared<RecomputeRegion>(inputs, std::move(again))->run_first(first);
}

/// Parameters are watched even where no node saves them, such as those that are only added.
RTRAIN_DOOR void RecomputeRegion::find_leaves(const std::vector<at::Tensor>& outputs,
                                              std::uint64_t begin) {
    std::vector<torch::autograd::Node*> open;
    std::unordered_set<const torch::autograd::Node*> seen;
    const auto visit = [&](torch::autograd::Node* node) {
        if (node != nullptr && node->sequence_nr() >= begin && seen.insert(node).second) {
            open.push_back(node);
        }
    };
    for (const at::Tensor& tensor : outputs) {
        visit(tensor.defined() ? tensor.grad_fn().get() : nullptr);
    }
    while (!open.empty()) {
        torch::autograd::Node* const node = open.back();
        open.pop_back();
        if (const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
            leaves_.emplace_back(leaf->variable);
        }
        for (const auto& edge : node->next_edges()) {
            visit(edge.function.get());
        }
    }
}

RTRAIN_DOOR at::Tensor RecomputeRegion::give(std::size_t number) {
    const std::lock_guard lock(mutex_);
    const int task = torch::autograd::get_current_graph_task_id();
    if (task != task_ || task < 0) {
        begin_task(task);
    }
    RecomputeSlot& slot = slots_[number];
    if (slot.edits.is_edited() && is_complete_) {
        require_unedited();
    }
    if (!slot.again.defined()) {
        recompute(number);
    }
    if (slot.edits_again->is_edited()) {
        throw ModelError("RT-M31",
                         concat("a function under recompute() edits in place what one of its "
                                "operations has saved for backward (tensor ",
                                number, ", ", slot.type, " ", slot.sizes,
                                "), so its gradient would be wrong; edit a copy"));
    }
    slot.is_given = true;
    at::Tensor tensor = std::exchange(slot.again, {});
    if (task < 0) {
        end_task(task);
    }
    return tensor;
}

RTRAIN_DOOR void RecomputeRegion::recompute(std::size_t asked) {
    if (is_recomputing_) {
        throw ModelError("RT-M30",
                         "a function under recompute() needs, in its second run, a tensor that "
                         "this run has yet to compute: it runs backward through a result of its "
                         "first run; make it compute what it needs itself");
    }
    if (is_complete_) {
        require_unedited();
    }
    std::vector<at::Tensor> inputs;
    for (const Input& input : inputs_) {
        at::Tensor& tensor = inputs.emplace_back();
        if (input.edits) {
            tensor = at::Tensor(input.saved.unpack().variable_data())
                         .set_requires_grad(input.requires_grad);
        }
    }
    struct Busy {
        explicit Busy(bool& is_busy) : flag(is_busy) { flag = true; }
        ~Busy() { flag = false; }
        bool& flag;
    } const busy(is_recomputing_);
    const InPlaceWriteLog::Undo undo(writes_);
    const RandomStates::Scope random(random_);
    const AutocastAs autocast(autocast_);
    const c10::AutoGradMode with_gradients(true);
    Recomputation recomputation(slots_, asked);
    const Saving saving(*this, &recomputation);
    try {
        again_(inputs);
        recomputation.require_all();
    } catch (const AllIsRecomputed&) { // expected
    }
}

RTRAIN_DOOR void RecomputeRegion::require_unedited() const {
    const auto edited = [](const EditCheck& check) { return check.is_edited(); };
    const char* what = nullptr;
    if (std::ranges::any_of(
            inputs_, [&](const Input& input) { return input.edits && edited(*input.edits); })) {
        what = "an argument";
    } else if (std::ranges::any_of(leaves_, edited)) {
        what = "a parameter that it uses";
    } else if (std::ranges::any_of(slots_, [&](const RecomputeSlot& slot) {
                   return slot.is_wanted && edited(slot.edits);
               })) {
        what = "a tensor that backward needs";
    }
    if (what != nullptr) {
        throw ModelError("RT-M31",
                         concat("a function under recompute() has to run again, but ", what,
                                " has been edited in place since its first run; call "
                                "backward() before the optimizer's step, and edit copies"));
    }
}

/// Discards what another task has left, which may have ended in an exception.
RTRAIN_DOOR void RecomputeRegion::begin_task(int task) {
    end_task(task_);
    task_ = task;
    if (task >= 0) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [region = weak_from_this(), task] {
                if (const auto living = region.lock()) {
                    const std::lock_guard lock(living->mutex_);
                    living->end_task(task);
                }
            });
    }
}

RTRAIN_DOOR void RecomputeRegion::end_task(int task) {
    if (task != task_) {
        return;
    }
    task_ = -1;
    for (RecomputeSlot& slot : slots_) {
        slot.is_given = false;
        slot.again.reset();
    }
}

} // namespace rtrain::detail
