// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings of libtorch that a function may change, of its thread and of the process. They are
/// restored before the next attempt, or the next trial of a search.
#pragma once

#include <rtrain/backend/autocast_state.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>

#include <array>
#include <cfenv>
#include <cstddef>
#include <exception>
#include <optional>

namespace rtrain::detail {

/// Settings of the calling thread at construction: grad mode, inference mode, autocast, intra-op
/// threads, floating-point rounding and denormal numbers.
class ThreadSettings {
public:
    ThreadSettings() { std::fegetenv(&arithmetic_); }

    void restore() const {
        c10::AutogradState::set_tls_state(autograd_);
        c10::impl::_force_tls_local_dispatch_key_set(keys_);
        autocast_.enter();
        while (nesting() > nesting_) {
            at::autocast::decrement_nesting();
        }
        at::autocast::clear_cache();
        if (at::get_num_threads() != threads_) {
            at::set_num_threads(threads_);
        }
        std::fesetenv(&arithmetic_);
    }

private:
    static int nesting() {
        at::autocast::increment_nesting();
        return at::autocast::decrement_nesting();
    }

    c10::AutogradState autograd_ = c10::AutogradState::get_tls_state();
    c10::impl::LocalDispatchKeySet keys_ = c10::impl::tls_local_dispatch_key_set();
    AutocastState autocast_;
    int nesting_ = nesting();
    int threads_ = at::get_num_threads();
    std::fenv_t arithmetic_{};
};

/// Settings of the process at construction.
class ProcessSettings {
public:
    ProcessSettings() {
        for (std::size_t i = 0; i < flags.size(); ++i) {
            flags_[i] = value_of(flags[i].get);
        }
    }

    void restore() const {
        if (c10::get_default_dtype() != type_) {
            c10::set_default_dtype(type_);
        }
        if (precision_ && value_of(&matmul_precision) != precision_) {
            constexpr std::array names{"highest", "high", "medium"};
            context().setFloat32MatmulPrecision(names[static_cast<std::size_t>(*precision_)]);
        }
        for (std::size_t i = 0; i < flags.size(); ++i) {
            if (flags_[i] && value_of(flags[i].get) != flags_[i]) {
                flags[i].set(*flags_[i]);
            }
        }
    }

    friend bool operator==(const ProcessSettings& a, const ProcessSettings& b) {
        return a.type_ == b.type_ && a.precision_ == b.precision_ && a.flags_ == b.flags_;
    }

private:
    using Anomalies = torch::autograd::AnomalyMode;
    struct Flag {
        bool (*get)();
        void (*set)(bool);
    };
    static at::Float32MatmulPrecision matmul_precision() {
        return context().float32MatmulPrecision();
    }
    static at::Context& context() { return at::globalContext(); }
    static constexpr std::array flags{
        Flag{[] { return context().deterministicAlgorithms(); },
             [](bool on) {
                 context().setDeterministicAlgorithms(on,
                                                      context().deterministicAlgorithmsWarnOnly());
             }},
        Flag{[] { return context().deterministicAlgorithmsWarnOnly(); },
             [](bool on) {
                 context().setDeterministicAlgorithms(context().deterministicAlgorithms(), on);
             }},
        Flag{[] { return context().deterministicFillUninitializedMemory(); },
             [](bool on) { context().setDeterministicFillUninitializedMemory(on); }},
        Flag{[] { return context().deterministicCuDNN(); },
             [](bool on) { context().setDeterministicCuDNN(on); }},
        Flag{[] { return context().benchmarkCuDNN(); },
             [](bool on) { context().setBenchmarkCuDNN(on); }},
        Flag{[] { return context().userEnabledCuDNN(); },
             [](bool on) { context().setUserEnabledCuDNN(on); }},
        Flag{[] { return context().userEnabledMkldnn(); },
             [](bool on) { context().setUserEnabledMkldnn(on); }},
        Flag{[] { return context().userEnabledFlashSDP(); },
             [](bool on) { context().setSDPUseFlash(on); }},
        Flag{[] { return context().userEnabledMemEfficientSDP(); },
             [](bool on) { context().setSDPUseMemEfficient(on); }},
        Flag{[] { return context().userEnabledMathSDP(); },
             [](bool on) { context().setSDPUseMath(on); }},
        Flag{[] { return context().allowTF32CuDNN(); },
             [](bool on) { context().setAllowTF32CuDNN(on); }},
        Flag{[] { return torch::jit::getGraphExecutorOptimize(); },
             [](bool on) { torch::jit::setGraphExecutorOptimize(on); }},
        Flag{[] { return Anomalies::is_enabled(); },
             [](bool on) { Anomalies::set_enabled(on, Anomalies::should_check_nan()); }},
        Flag{[] { return Anomalies::should_check_nan(); },
             [](bool on) { Anomalies::set_enabled(Anomalies::is_enabled(), on); }}};

    /// Empty if libtorch refuses to answer: its old names for TF32 after a use of the new ones.
    template <class T>
    static std::optional<T> value_of(T (*get)()) {
        try {
            return get();
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    caffe2::TypeMeta type_ = c10::get_default_dtype();
    std::optional<at::Float32MatmulPrecision> precision_ = value_of(&matmul_precision);
    std::array<std::optional<bool>, flags.size()> flags_{};
};

/// Restores all settings on destruction.
class KeptSettings {
public:
    KeptSettings() = default;
    KeptSettings(const KeptSettings&) = delete;
    KeptSettings& operator=(const KeptSettings&) = delete;
    ~KeptSettings() {
        process_.restore();
        thread_.restore();
    }

private:
    ThreadSettings thread_;
    ProcessSettings process_;
};

} // namespace rtrain::detail
