// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host's part of a step that the device replays from a graph (captured_step.hpp): a graph has
/// fixed memory and fixed numbers, and nothing that the host does.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Throws ModelError [RT-M70].
[[noreturn]] inline void throw_not_capturable(const std::string& what) {
    throw ModelError("RT-M70", "the step cannot be captured: " + what);
}

class Recording {
public:
    /// The recording of the step that is being recorded; null when none is.
    [[nodiscard]] static Recording* current() noexcept { return current_of_process(); }

    /// While it exists, the recording is the current one.
    class Scope {
    public:
        explicit Scope(Recording& recording) { current_of_process() = &recording; }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() { current_of_process() = nullptr; }
    };

    /// Returns true the first time that `who` is passed.
    [[nodiscard]] bool remember(const void* who) { return known_.insert(who).second; }

    /// Called before each replay; throws when what was recorded is no longer valid.
    void before(std::function<void()> check) { before_.push_back(std::move(check)); }
    /// Called before each replay except the first, which the recorded call has counted.
    void before_again(std::function<void()> advance) { again_.push_back(std::move(advance)); }
    /// Called after each replay.
    void after(std::function<void()> count) { after_.push_back(std::move(count)); }

    /// A number on the device, set to `value()` before each replay. Shape {}, float32.
    [[nodiscard]] at::Tensor number(at::Device device, std::function<double()> value) {
        // Not filled here: that would be recorded, and repeated.
        numbers_.emplace_back(at::empty({}, at::device(device).dtype(at::kFloat)),
                              std::move(value));
        return numbers_.back().first;
    }

    /// Watches parameters that only prepared optimizers may change: the numbers of others would be
    /// fixed.
    void watch(const std::vector<at::Tensor>& parameters) {
        for (const at::Tensor& parameter : parameters) {
            versions_.emplace(parameter.unsafeGetTensorImpl(),
                              Watched{parameter, parameter._version()});
        }
    }
    /// Called when a prepared optimizer has changed the parameter.
    void stepped(const at::Tensor& parameter) {
        if (const auto found = versions_.find(parameter.unsafeGetTensorImpl());
            found != versions_.end()) {
            found->second.version = parameter._version();
        }
    }

    /// Called after the recorded call. Throws ModelError [RT-M70].
    void end() const {
        for (const auto& [key, watched] : versions_) {
            if (watched.parameter._version() != watched.version) {
                throw_not_capturable("it changes a parameter other than by an optimizer returned "
                                     "by worker.prepare(), and a graph would repeat the current "
                                     "learning rate and step number; prepare the optimizer (SGD, "
                                     "Adam, AdamW), or call it after the captured step");
            }
        }
    }

    /// Replays the graph by `run`.
    template <class Run>
    void replay(Run&& run) {
        if (replays_++ > 0) {
            call(again_);
        }
        call(before_);
        {
            const c10::NoGradGuard no_grad;
            for (auto& [tensor, value] : numbers_) {
                tensor.fill_(value());
            }
        }
        run();
        call(after_);
    }

private:
    struct Watched {
        at::Tensor parameter;
        std::int64_t version;
    };

    [[nodiscard]] static Recording*& current_of_process() noexcept {
        static Recording* current = nullptr; // backward runs in other threads
        return current;
    }
    static void call(const std::vector<std::function<void()>>& functions) {
        for (const auto& function : functions) {
            function();
        }
    }

    std::unordered_set<const void*> known_;
    std::vector<std::function<void()>> before_;
    std::vector<std::function<void()>> again_;
    std::vector<std::function<void()>> after_;
    std::vector<std::pair<at::Tensor, std::function<double()>>> numbers_;
    std::unordered_map<const void*, Watched> versions_;
    std::int64_t replays_ = 0;
};

/// Throws ModelError [RT-M72].
[[noreturn]] inline void throw_changed_since_capture(const std::string& what) {
    throw ModelError("RT-M72",
                     concat(what, " since the step was captured, but the graph uses the old state; "
                                  "call worker.capture() again after the change"));
}

} // namespace rtrain::detail
