// SPDX-License-Identifier: Apache-2.0
/// @file
/// State: the objects that a checkpoint saves and a resumed run restores.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/state/parameter_names.hpp>
#include <rtrain/state/save_as.hpp>
#include <rtrain/state/scheduler_state.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/state/tensor_state.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <boost/json/value.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

template <class T>
concept HoldsModule = requires(const T& holder) {
    { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};
template <class T>
concept SavesItself = requires(const T& saved, T& loaded, StateWriter& out, const StateReader& in) {
    saved.save(out);
    loaded.load(in);
};
template <class T>
concept Scheduler = std::derived_from<T, torch::optim::LRScheduler> ||
    std::derived_from<T, torch::optim::ReduceLROnPlateauScheduler>;
template <class T>
concept PlainValue = std::is_arithmetic_v<T> || std::same_as<T, std::string> ||
    std::same_as<T, boost::json::value> || std::same_as<T, boost::json::object>;

} // namespace detail

/// Named references to the objects of a training function. A checkpoint also holds the random
/// number generators of every rank and the position in every data set, so a resumed run is
/// bit-identical to one that never stopped.
///
/// @code
/// auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
/// @endcode
///
/// The objects are not copied: they must live as long as the state.
class State {
public:
    /// Adds a model (prepared, a module holder, or a shared pointer), an optimizer or scheduler of
    /// torch::optim, an at::Generator, an at::Tensor (loaded in place), a number, string or JSON
    /// value, or an object with `save(StateWriter&) const` and `load(const StateReader&)`. A
    /// model's class may have these, too, for state other than parameters and buffers. Names:
    /// letters, digits, '.', '_', '-'; each once (RT-K8).
    ///
    /// Values must be the same on all ranks (RT-K29), except buffers of models, which are saved
    /// from rank 0, and generators, which are saved from each rank.
    template <class T>
    State& add(const std::string& name, T&& object) & {
        check_name(name);
        using Object = std::remove_cvref_t<T>;
        if constexpr (std::convertible_to<Object, std::shared_ptr<torch::nn::Module>>) {
            add_module_of(name, object);
        } else if constexpr (detail::HoldsModule<Object>) {
            add_module_of(name, object.ptr());
        } else {
            static_assert(
                std::is_lvalue_reference_v<T> && !std::is_const_v<std::remove_reference_t<T>>,
                "rtrain: State::add() refers to objects: pass a variable, not a temporary "
                "or a constant [RT-A1]");
            entries_.push_back(entry(name, object));
        }
        return *this;
    }
    template <class T>
    State&& add(const std::string& name, T&& object) && {
        return std::move(add(name, std::forward<T>(object)));
    }

    /// Like add(), for per-rank values such as a replay buffer or a counter of its rows: every
    /// rank's value is saved, and loaded by the same rank. On a different number of ranks, the
    /// values of ranks that no longer exist are dropped, and new ranks keep their values.
    template <class T>
    State& add_per_rank(const std::string& name, T&& object) & {
        add(name, std::forward<T>(object));
        make_per_rank();
        return *this;
    }
    template <class T>
    State&& add_per_rank(const std::string& name, T&& object) && {
        return std::move(add_per_rank(name, std::forward<T>(object)));
    }

    /// Saves the objects' current values. Throws CheckpointError [RT-K7] for an object that may
    /// have more state than would be saved.
    void save(checkpoint::Snapshot& snapshot) const;

    /// Loads the saved values into the objects. Throws CheckpointError [RT-K3] if they do not fit.
    void load(const checkpoint::Snapshot& snapshot) const;

    /// Loads the values of a checkpoint, whose bytes are checked, into the objects; for one
    /// process, without a trainer. Throws CheckpointError [RT-K1, RT-K2, RT-K3].
    void load_from(const Checkpoint& checkpoint) const;

private:
    struct Entry {
        std::string name;
        std::function<void(StateWriter&)> save;
        std::function<void(const StateReader&)> load;
        /// Adds the names of its tensors, if optimizers may have them.
        std::function<void(checkpoint::ParameterNames&)> name_tensors{};
    };

    void check_name(const std::string& name) const;
    [[nodiscard]] checkpoint::ParameterNames parameter_names() const;
    /// Makes the entry added last per-rank.
    void make_per_rank();

    template <class M>
    void add_module_of(const std::string& name, const std::shared_ptr<M>& module) {
        if constexpr (detail::SavesItself<M>) {
            add_module(
                name, module, [module](StateWriter& out) { std::as_const(*module).save(out); },
                [module](const StateReader& in) { module->load(in); });
        } else {
            add_module(name, module);
        }
    }
    /// `save` and `load`: for state of the module's class other than parameters and buffers.
    void add_module(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
                    std::function<void(StateWriter&)> save = {},
                    std::function<void(const StateReader&)> load = {});

    template <class T>
    static Entry entry(const std::string& name, T& object) {
        if constexpr (detail::SavesItself<T>) {
            return {name, [&object](StateWriter& out) { std::as_const(object).save(out); },
                    [&object](const StateReader& in) { object.load(in); }};
        } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
            return {name, [&object](StateWriter& out) { checkpoint::save_optimizer(object, out); },
                    [&object](const StateReader& in) { checkpoint::load_optimizer(object, in); }};
        } else if constexpr (detail::Scheduler<T>) {
            return {name,
                    [&object](StateWriter& out) {
                        checkpoint::require_own_class(object);
                        checkpoint::save_scheduler(object, out);
                    },
                    [&object](const StateReader& in) {
                        checkpoint::require_own_class(object);
                        checkpoint::load_scheduler(object, in);
                    }};
        } else if constexpr (std::same_as<T, at::Generator>) {
            return {name,
                    [&object](StateWriter& out) { out.bytes_of_rank("state", object.get_state()); },
                    [&object](const StateReader& in) { checkpoint::load_generator(object, in); }};
        } else if constexpr (std::same_as<T, at::Tensor>) {
            return {name, [&object](StateWriter& out) { checkpoint::save_tensor(object, out); },
                    [&object](const StateReader& in) { checkpoint::load_tensor(object, in); },
                    [&object, name](checkpoint::ParameterNames& names) {
                        if (object.defined()) {
                            names.add(name + "/tensor", object);
                        }
                    }};
        } else if constexpr (std::floating_point<T>) {
            return {name, // a tensor, because JSON cannot hold NaN and infinities
                    [&object](StateWriter& out) {
                        out.tensor("value", at::scalar_tensor(object, at::kDouble));
                    },
                    [&object](const StateReader& in) {
                        object = static_cast<T>(in.tensor("value").item<double>());
                    }};
        } else if constexpr (detail::PlainValue<T>) {
            return {name,
                    [&object](StateWriter& out) { out.value("value", boost::json::value(object)); },
                    [&object](const StateReader& in) { load_value(in.value("value"), object); }};
        } else {
            static_assert(detail::PlainValue<T>,
                          "rtrain: State::add() cannot save this type: give it save(StateWriter&) "
                          "const and load(const StateReader&), or keep numbers in an at::Tensor "
                          "[RT-A2]");
            return {};
        }
    }

    template <class T>
    static void load_value(const boost::json::value& saved, T& value) {
        if constexpr (std::same_as<T, boost::json::value>) {
            value = saved;
        } else if constexpr (std::same_as<T, boost::json::object>) {
            value = saved.as_object();
        } else if constexpr (std::same_as<T, std::string>) {
            value = saved.as_string();
        } else if constexpr (std::same_as<T, bool>) {
            value = saved.as_bool();
        } else {
            value = saved.to_number<T>();
        }
    }

    /// Name of the entries that rtrain itself adds to a checkpoint.
    static constexpr const char* reserved = "rtrain";
    std::vector<Entry> entries_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/state/state_definitions.hpp>
#endif
