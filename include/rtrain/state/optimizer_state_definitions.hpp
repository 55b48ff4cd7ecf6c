// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door optimizer_state.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/state/optimizer_fields.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/state/option_changes.hpp>
#include <rtrain/state/parameter_groups.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/state/unknown_class.hpp>

#include <torch/optim.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

namespace optim {

class Saver {
public:
    /// `part`: the part of a parameter that the tensors hold; null for none. `is_own`: the
    /// parameter differs between ranks. `is_late`: see StateWriter::late().
    explicit Saver(StateWriter out, const PartOf* part = nullptr, bool is_own = false,
                   bool is_late = false)
        : out_(std::move(out)), part_(part), is_own_(is_own), is_late_(is_late) {}
    template <class T>
    requires std::is_arithmetic_v<T>
    void operator()(const char* name, T value) { out_.value(name, value); }
    void operator()(const char* name, const std::tuple<double, double>& pair) {
        out_.value(name, {std::get<0>(pair), std::get<1>(pair)});
    }
    template <class T>
    requires std::is_arithmetic_v<T> || std::is_same_v<T, std::string>
    void operator()(const char* name, const std::optional<T>& value) {
        out_.value(name, value ? boost::json::value(*value) : boost::json::value(nullptr));
    }
    void operator()(const char* name, const at::Tensor& tensor) {
        if (tensor.defined() && part_ != nullptr) {
            out_.elements(name, part_->shape, part_->begin, in_rows(*part_, tensor));
        } else if (tensor.defined() && is_own_) {
            out_.tensor_of_rank_0(name, tensor);
        } else if (tensor.defined()) {
            out_.tensor(name, tensor);
        }
        if (tensor.defined() && is_late_) {
            out_.late(name);
        }
    }
    void operator()(const char* name, const std::deque<at::Tensor>& list) { save(name, list); }
    void operator()(const char* name, const std::optional<std::vector<at::Tensor>>& list) {
        if (list) {
            save(name, *list);
        }
    }

private:
    template <class List>
    void save(const std::string& name, const List& list) {
        out_.value(name, list.size());
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (list[i].defined()) {
                out_.tensor(name + "/" + std::to_string(i), list[i]);
            }
        }
    }

    StateWriter out_;
    const PartOf* part_;
    bool is_own_;
    bool is_late_;
};

class Loader {
public:
    /// `like`: the parameter; `part`: its place in a whole parameter; null for none. `flat`:
    /// element count of all parameters, for LBFGS, which keeps them in one tensor.
    explicit Loader(const StateReader& in, at::Tensor like = {}, const PartOf* part = nullptr,
                    std::optional<std::int64_t> flat = std::nullopt)
        : in_(in), like_(std::move(like)), part_(part), flat_(flat) {}
    template <class T>
    requires std::is_arithmetic_v<T>
    void operator()(const char* name, T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            value = in_.value(name).as_bool();
        } else {
            value = in_.value(name).to_number<T>();
        }
    }
    void operator()(const char* name, std::tuple<double, double>& pair) {
        const auto& saved = in_.value(name).as_array();
        pair = {saved.at(0).to_number<double>(), saved.at(1).to_number<double>()};
    }
    void operator()(const char* name, std::optional<std::int64_t>& value) {
        const auto& saved = in_.value(name);
        value = saved.is_null() ? std::nullopt : std::optional(saved.to_number<std::int64_t>());
    }
    void operator()(const char* name, std::optional<std::string>& value) {
        const auto& saved = in_.value(name);
        value = saved.is_null() ? std::nullopt : std::optional(std::string(saved.as_string()));
    }
    void operator()(const char* name, at::Tensor& tensor) { tensor = load(name); }
    void operator()(const char* name, std::deque<at::Tensor>& list) {
        list.clear();
        load_list(name, list);
    }
    void operator()(const char* name, std::optional<std::vector<at::Tensor>>& list) {
        list.reset();
        if (in_.has_value(name)) {
            load_list(name, list.emplace());
        }
    }

private:
    [[nodiscard]] at::Tensor load(const std::string& name) const {
        if (!in_.has_tensor(name)) {
            return {};
        }
        if (part_ == nullptr) {
            const at::Tensor saved = in_.tensor(name);
            require_fitting(name, saved.sizes());
            return saved.clone().to(like_.defined() ? like_.device() : at::kCPU);
        }
        const at::Tensor rows =
            in_.elements(name, part_->shape, part_->begin, part_->begin + like_.numel());
        return in_memory(*part_, rows).to(like_.device());
    }
    /// Kernels index memory directly and do not check the shape.
    void require_fitting(const std::string& name, at::IntArrayRef saved) const {
        const at::IntArrayRef shape = flat_ ? at::IntArrayRef(*flat_) : like_.sizes();
        const bool is_scalar_of_lbfgs = flat_ && saved.empty();
        if (saved != shape && !is_scalar_of_lbfgs) {
            throw CheckpointError(
                "RT-K3", detail::concat("\"", in_.prefix(), name, "\" is ", saved,
                                        " in the checkpoint, but ", shape,
                                        " in the program; build the same model and optimizer"));
        }
    }
    template <class List>
    void load_list(const std::string& name, List& list) const {
        const auto size = in_.value(name).to_number<std::size_t>();
        for (std::size_t i = 0; i < size; ++i) {
            list.push_back(load(name + "/" + std::to_string(i)));
        }
    }
    const StateReader& in_;
    at::Tensor like_;
    const PartOf* part_;
    std::optional<std::int64_t> flat_;
};

/// Options of a parameter group, as saved.
template <class Options>
[[nodiscard]] boost::json::object options_json(Options& options) {
    Snapshot snapshot;
    fields(options, Saver(StateWriter(snapshot, "options")));
    return std::move(snapshot.values);
}

/// Element count of all parameters; see Loader.
template <class ParamState>
[[nodiscard]] std::optional<std::int64_t> flat_size(const std::vector<at::Tensor>& parameters) {
    if (!std::is_same_v<ParamState, torch::optim::LBFGSParamState>) {
        return std::nullopt;
    }
    std::int64_t size = 0;
    for (const at::Tensor& parameter : parameters) {
        size += parameter.numel();
    }
    return size;
}

[[nodiscard]] inline const PartOf* part_of(const torch::optim::Optimizer& optimizer,
                                           const at::Tensor& parameter) {
    const auto* const parts = dynamic_cast<const HoldsParts*>(&optimizer);
    return parts == nullptr ? nullptr : parts->part_of(parameter);
}

[[nodiscard]] inline at::Tensor whole_of(const torch::optim::Optimizer& optimizer,
                                         const at::Tensor& parameter) {
    const auto* const parts = dynamic_cast<const HoldsParts*>(&optimizer);
    return parts == nullptr ? parameter : parts->whole_of(parameter);
}

/// Visits the tensors of a parameter's state.
struct Visitor {
    const std::function<void(const char*, at::Tensor&)>& visit;
    void operator()(const char* name, at::Tensor& tensor) const {
        if (tensor.defined()) {
            visit(name, tensor);
        }
    }
    template <class T>
    void operator()(const char* /*name*/, const T& /*value*/) const {}
};

/// Calls `action.template operator()<Options, ParamState>(name)` for one of torch's classes. Throws
/// CheckpointError [RT-K7] for any other class, including derived ones.
template <class Action>
void with_class(const std::type_info& type, Action&& action) {
    using namespace torch::optim;
    if (type == typeid(SGD)) {
        action.template operator()<SGDOptions, SGDParamState>("SGD");
    } else if (type == typeid(AdamW)) {
        action.template operator()<AdamWOptions, AdamWParamState>("AdamW");
    } else if (type == typeid(Adam)) {
        action.template operator()<AdamOptions, AdamParamState>("Adam");
    } else if (type == typeid(Adagrad)) {
        action.template operator()<AdagradOptions, AdagradParamState>("Adagrad");
    } else if (type == typeid(RMSprop)) {
        action.template operator()<RMSpropOptions, RMSpropParamState>("RMSprop");
    } else if (type == typeid(LBFGS)) {
        action.template operator()<LBFGSOptions, LBFGSParamState>("LBFGS");
    } else {
        throw unknown_class(type, "an optimizer that rtrain can save (SGD, Adam, AdamW, Adagrad, "
                                  "RMSprop and LBFGS of torch::optim)");
    }
}

} // namespace optim

RTRAIN_DOOR void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out,
                                const std::type_info& as) {
    optim::with_class(as, [&]<class Options, class ParamState>(const char* name) {
        const ParameterGroups names(optimizer, out.names());
        names.require_distinct();
        StateWriter(out).value("class", name);
        const bool waits = dynamic_cast<const HoldsParts*>(&optimizer) != nullptr; // it is prepared
        std::size_t group_index = 0;
        for (auto& group : optimizer.param_groups()) {
            StateWriter part = out.part(std::to_string(group_index));
            part.value("parameters", group.params().size());
            names.save(group_index++, part);
            optim::fields(static_cast<Options&>(group.options()),
                          optim::Saver(part.part("options")));
            for (std::size_t i = 0; i < group.params().size(); ++i) {
                const at::Tensor& parameter = group.params()[i];
                const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
                if (state != optimizer.state().end()) {
                    const std::string place = std::to_string(i);
                    const at::Tensor whole = optim::whole_of(optimizer, parameter);
                    const bool is_own = out.is_own_of_ranks(parameter);
                    const StateWriter kept = part.compared(is_own || out.is_prepared(whole)
                                                               ? detail::Comparison::none
                                                               : detail::Comparison::sample);
                    StateWriter(kept).value(place, true);
                    optim::fields(static_cast<ParamState&>(*state->second),
                                  optim::Saver(kept.part(place),
                                               optim::part_of(optimizer, parameter), is_own,
                                               waits && out.is_stepped(parameter)));
                }
            }
        }
        StateWriter(out).value("groups", group_index);
    });
}

RTRAIN_DOOR void cut_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& whole,
                                     const at::Tensor& part, const PartOf& of) {
    const auto found = optimizer.state().find(whole.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) {
        return;
    }
    visit_optimizer_state(optimizer, whole, [&](const char* /*name*/, at::Tensor& kept) {
        if (kept.sizes() == whole.sizes()) {
            const at::Tensor memory =
                at::empty_strided(of.shape, of.strides, kept.options()).copy_(kept);
            kept = memory.as_strided({memory.numel()}, {1})
                       .narrow(0, of.begin, part.numel())
                       .to(part.device(), part.scalar_type(), /*non_blocking=*/false,
                           /*copy=*/true);
        }
    });
    auto state = std::move(found->second);
    optimizer.state().erase(found);
    optimizer.state()[part.unsafeGetTensorImpl()] = std::move(state);
}

RTRAIN_DOOR void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in,
                                const std::type_info& as) {
    optim::with_class(as, [&]<class Options, class ParamState>(const char* name) {
        if (in.value("class").as_string() != name) {
            throw CheckpointError(
                "RT-K3", detail::concat("\"", in.prefix(), "\" is ", in.value("class").as_string(),
                                        " in the checkpoint, but ", name, " in the program"));
        }
        const auto saved = ParameterGroups(optimizer, in.names()).match(in);
        auto& groups = optimizer.param_groups();
        for (std::size_t g = 0; g < groups.size(); ++g) {
            if (!saved[g]) {
                continue;
            }
            const StateReader part = in.part(std::to_string(*saved[g]));
            auto& options = static_cast<Options&>(groups[g].options());
            const auto given = optim::options_json(options);
            optim::fields(options, optim::Loader(part.part("options")));
            optim::say_option_changes(in.prefix(), g, optim::options_json(options), given);
            for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
                const at::Tensor& parameter = groups[g].params()[i];
                const std::string place = std::to_string(i);
                if (part.has_value(place)) {
                    auto state = std::make_unique<ParamState>();
                    optim::fields(*state,
                                  optim::Loader(part.part(place), parameter,
                                                optim::part_of(optimizer, parameter),
                                                optim::flat_size<ParamState>(groups[g].params())));
                    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
                    if (auto* const listener = dynamic_cast<LoadListener*>(&optimizer)) {
                        listener->loaded(parameter);
                    }
                }
            }
        }
    });
}

RTRAIN_DOOR void visit_optimizer_state(torch::optim::Optimizer& optimizer,
                                       const at::Tensor& parameter,
                                       const std::function<void(const char*, at::Tensor&)>& visit) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) {
        return;
    }
    optim::with_class(
        class_of(optimizer), [&]<class Options, class ParamState>(const char* /*name*/) {
            optim::fields(static_cast<ParamState&>(*found->second), optim::Visitor{visit});
        });
}

} // namespace rtrain::checkpoint
