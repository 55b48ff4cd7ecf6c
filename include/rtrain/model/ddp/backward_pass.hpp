// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects where a backward pass begins and ends, from the hooks of a model's parameters.
///
/// A backward may run another inside itself: activation checkpointing recomputes a piece of the
/// forward pass and calls backward() on it. The engine treats it as a separate graph task, with its
/// own number and its own end. Nested tasks are one pass here, which ends with the outermost one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

class BackwardPass {
public:
    /// `at_end` is called when the outermost backward has computed all gradients, before it
    /// returns; not when an exception ends it.
    explicit BackwardPass(std::function<void()> at_end) : at_end_(std::move(at_end)) {}
    BackwardPass(const BackwardPass&) = delete;
    BackwardPass& operator=(const BackwardPass&) = delete;
    ~BackwardPass() {
        if (const auto watch = watch_.lock()) {
            watch->pass = nullptr;
        }
    }

    /// To be called first in every gradient hook. Returns true, once, if an exception has ended the
    /// last pass.
    bool consume_interruption() {
        if (!open_ || !watch_.expired()) {
            return false;
        }
        open_ = false;
        was_cut_short_ = true;
        return true;
    }

    /// To be called in every gradient hook that is part of a pass; returns whether it is the first
    /// of the pass.
    bool enter() {
        auto watch = watch_.lock();
        const bool begins = !open_;
        if (begins) {
            open_ = true;
            watch = std::make_shared<Watch>();
            watch->pass = this;
            watch_ = watch;
        }
        follow(watch);
        return begins;
    }

    /// True if an exception has ended a pass since the last reset().
    [[nodiscard]] bool was_interrupted() const noexcept { return was_cut_short_; }
    void reset() noexcept { was_cut_short_ = false; }

private:
    /// Held by the pending callbacks. If it expires before the end of the pass, none is left: an
    /// exception has ended the pass.
    struct Watch {
        BackwardPass* pass = nullptr;
        std::vector<int> tasks; ///< whose ends will be reported
    };

    /// Queues a callback for the end of the current graph task.
    static void follow(const std::shared_ptr<Watch>& watch) {
        const int task = torch::autograd::get_current_graph_task_id();
        auto& known = watch->tasks;
        if (!known.empty() &&
            (known.back() == task || std::find(known.begin(), known.end(), task) != known.end())) {
            return;
        }
        known.push_back(task);
        torch::autograd::Engine::get_default_engine().queue_callback([watch] {
            if (watch->pass != nullptr) {
                watch->pass->end_task(watch);
            }
        });
    }

    void end_task(const std::shared_ptr<Watch>& watch) {
        // A node is still being evaluated although this task has ended: the task is nested in it.
        const auto outer = torch::autograd::get_current_node();
        if (outer && follow_behind(*outer, watch)) {
            return;
        }
        watch->pass = nullptr;
        open_ = false;
        at_end_();
    }

    /// Continues watching in the task that evaluates `node`, at its next step. There is one: a node
    /// runs because one of its inputs needs a gradient.
    template <class Node>
    static bool follow_behind(const Node& node, const std::shared_ptr<Watch>& watch) {
        bool any = false;
        for (const auto& edge : node.next_edges()) {
            if (edge.is_valid()) {
                edge.function->add_pre_hook(std::make_unique<FollowOnce>(watch));
                any = true;
            }
        }
        return any;
    }

    struct FollowOnce final : torch::autograd::FunctionPreHook {
        explicit FollowOnce(std::shared_ptr<Watch> to) : watch(std::move(to)) {}
        std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& gradients) override {
            if (const auto mine = std::exchange(watch, nullptr); mine && mine->pass != nullptr) {
                follow(mine);
            }
            return gradients;
        }
        std::shared_ptr<Watch> watch;
    };

    std::function<void()> at_end_;
    std::weak_ptr<Watch> watch_;
    bool open_ = false;
    bool was_cut_short_ = false;
};

} // namespace rtrain::detail
