// SPDX-License-Identifier: Apache-2.0
/// @file
/// Restores the parameter groups of a saved optimizer. Parameters are matched by name, so the order
/// of registration and of groups does not matter, and groups added during the run are restored.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/parameter_names.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/optim/optimizer.h>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

class ParameterGroups {
public:
    using Names = std::vector<std::string>; ///< names of one parameter; empty: not in the state

    ParameterGroups(torch::optim::Optimizer& optimizer, const ParameterNames* names)
        : optimizer_(optimizer), names_(names) {}

    [[nodiscard]] Names names_of(const at::Tensor& parameter) const {
        const auto* const parts = dynamic_cast<const HoldsParts*>(&optimizer_);
        return names_ == nullptr
                   ? Names()
                   : names_->of(parts == nullptr ? parameter : parts->whole_of(parameter));
    }

    /// Throws CheckpointError [RT-K30] for a parameter in two groups, which each step would update
    /// twice. A parameter with several names is shared, and may be in the groups of several
    /// modules.
    void require_distinct() const {
        std::map<const void*, std::size_t> group_of;
        for (std::size_t g = 0; g < groups().size(); ++g) {
            for (const at::Tensor& parameter : groups()[g].params()) {
                const auto [known, is_new] = group_of.emplace(parameter.unsafeGetTensorImpl(), g);
                const Names names = names_of(parameter);
                if (!is_new && known->second != g && names.size() == 1) {
                    throw CheckpointError(
                        "RT-K30",
                        detail::concat("\"", names[0], "\" is in the parameter groups ",
                                       known->second, " and ", g,
                                       " of an optimizer, so each step would update it twice; add "
                                       "a group only if param_groups() does not have it yet: a "
                                       "resumed run has the groups of its checkpoint"));
                }
            }
        }
    }

    void save(std::size_t group, StateWriter& out) const {
        boost::json::array all;
        bool any = false;
        for (const at::Tensor& parameter : groups()[group].params()) {
            const Names names = names_of(parameter);
            any = any || !names.empty();
            all.emplace_back(boost::json::array(names.begin(), names.end()));
        }
        if (any) {
            out.value("names", std::move(all));
        }
    }

    /// Makes the groups those of the checkpoint, each with its parameters in the saved order.
    /// Returns the saved index of each group; empty for an empty group that the checkpoint lacks.
    /// If it throws CheckpointError [RT-K3], nothing is changed.
    [[nodiscard]] std::vector<std::optional<std::size_t>> match(const StateReader& in) {
        const auto count = in.value("groups").to_number<std::size_t>();
        std::vector<Saved> saved;
        bool has_names = false;
        for (std::size_t s = 0; s < count; ++s) {
            saved.push_back(saved_group(in.part(std::to_string(s))));
            has_names = has_names || std::ranges::any_of(saved.back(), &has_name);
        }
        const Held held = look_at_groups();
        if (!has_names || !held.any_name) {
            if (has_names) {
                console::warn("the parameters of \"%s\" are matched by position, because the state "
                              "does not contain their model",
                              in.prefix().c_str());
            }
            return match_by_place(in, saved);
        }
        return match_by_name(in, saved, held);
    }

private:
    using Saved = std::vector<Names>; ///< names of the parameters of a group
    /// Groups and parameters of the optimizer.
    struct Held {
        std::map<const void*, std::set<std::size_t>> groups; ///< by parameter
        std::map<std::string, at::Tensor> by_name;
        std::vector<at::Tensor> unnamed;
        bool any_name = false;
    };

    [[nodiscard]] static bool has_name(const Names& names) { return !names.empty(); }
    [[nodiscard]] std::vector<torch::optim::OptimizerParamGroup>& groups() const {
        return optimizer_.param_groups();
    }

    [[nodiscard]] static Saved saved_group(const StateReader& in) {
        Saved saved(in.value("parameters").to_number<std::size_t>());
        if (in.has_value("names")) { // not in older checkpoints
            const auto& all = in.value("names").as_array();
            for (std::size_t i = 0; i < saved.size(); ++i) {
                for (const auto& name : all.at(i).as_array()) {
                    saved[i].emplace_back(name.as_string());
                }
            }
        }
        return saved;
    }

    [[nodiscard]] Held look_at_groups() const {
        Held held;
        for (std::size_t g = 0; g < groups().size(); ++g) {
            for (const at::Tensor& parameter : groups()[g].params()) {
                const Names names = names_of(parameter);
                auto& in_groups = held.groups[parameter.unsafeGetTensorImpl()];
                if (names.empty() && in_groups.empty()) {
                    held.unnamed.push_back(parameter);
                }
                in_groups.insert(g);
                held.any_name = held.any_name || !names.empty();
                for (const std::string& name : names) {
                    held.by_name[name] = parameter;
                }
            }
        }
        return held;
    }

    [[nodiscard]] std::vector<std::optional<std::size_t>>
    match_by_place(const StateReader& in, const std::vector<Saved>& saved) const {
        if (saved.size() != groups().size()) {
            throw CheckpointError("RT-K3",
                                  detail::concat("\"", in.prefix(), "\" has ", saved.size(),
                                                 " parameter groups in the checkpoint, but ",
                                                 groups().size(), " in the program"));
        }
        std::vector<std::optional<std::size_t>> same;
        for (std::size_t g = 0; g < saved.size(); ++g) {
            if (saved[g].size() != groups()[g].params().size()) {
                throw CheckpointError(
                    "RT-K3", detail::concat("\"", in.prefix(), g, "\" has ", saved[g].size(),
                                            " parameters in the checkpoint, but ",
                                            groups()[g].params().size(), " in the program"));
            }
            same.emplace_back(g);
        }
        optimizer_.state().clear();
        return same;
    }

    [[nodiscard]] std::vector<std::optional<std::size_t>>
    match_by_name(const StateReader& in, const std::vector<Saved>& saved, const Held& held) {
        const auto found = find_parameters(in, saved, held);
        std::vector<std::optional<std::size_t>> group_of; // by saved group; empty: to be added
        std::set<std::size_t> taken;
        for (std::size_t s = 0; s < saved.size(); ++s) {
            group_of.push_back(find_group(in, s, found[s], held, taken));
            if (group_of.back()) {
                taken.insert(*group_of.back());
            }
        }
        for (std::size_t g = 0; g < groups().size(); ++g) {
            if (!taken.contains(g) && !groups()[g].params().empty()) {
                throw_divided(in, g);
            }
        }
        optimizer_.state().clear(); // add_param_group() refuses parameters that have a state
        std::vector<std::optional<std::size_t>> saved_of(groups().size());
        for (std::size_t s = 0; s < saved.size(); ++s) {
            if (group_of[s]) {
                groups()[*group_of[s]].params() = found[s];
                saved_of[*group_of[s]] = s;
            } else {
                optimizer_.add_param_group(torch::optim::OptimizerParamGroup(found[s]));
                saved_of.emplace_back(s);
            }
        }
        return saved_of;
    }

    /// Tensors by saved group and position: from the optimizer, or from a module in the state.
    [[nodiscard]] std::vector<std::vector<at::Tensor>>
    find_parameters(const StateReader& in, const std::vector<Saved>& saved,
                    const Held& held) const {
        std::vector<std::vector<at::Tensor>> found(saved.size());
        std::set<const void*> used;
        auto unnamed = held.unnamed.begin();
        for (std::size_t s = 0; s < saved.size(); ++s) {
            for (const Names& names : saved[s]) {
                at::Tensor parameter = find(names, held);
                if (names.empty() && unnamed != held.unnamed.end()) {
                    parameter = *unnamed++;
                }
                if (!parameter.defined()) {
                    throw CheckpointError(
                        "RT-K3",
                        detail::concat("\"", in.prefix(), s, "\" has ",
                                       names.empty() ? "a parameter outside of the state"
                                                     : '"' + names[0] + '"',
                                       " in the checkpoint, but not in the program; build the same "
                                       "model, and add it to the state"));
                }
                used.insert(parameter.unsafeGetTensorImpl());
                found[s].push_back(std::move(parameter));
            }
        }
        for (std::size_t g = 0; g < groups().size(); ++g) {
            for (const at::Tensor& parameter : groups()[g].params()) {
                if (!used.contains(parameter.unsafeGetTensorImpl())) {
                    const Names names = names_of(parameter);
                    throw CheckpointError(
                        "RT-K3",
                        detail::concat("\"", in.prefix(), "\" has no parameter \"",
                                       names.empty() ? "(not in the state)" : names[0],
                                       "\" in the checkpoint, but in group ", g,
                                       " in the program; give the optimizer the groups that it had "
                                       "at the start: those added later are restored"));
                }
            }
        }
        return found;
    }

    [[nodiscard]] at::Tensor find(const Names& names, const Held& held) const {
        for (const std::string& name : names) {
            if (const auto known = held.by_name.find(name); known != held.by_name.end()) {
                return known->second;
            }
        }
        for (const std::string& name : names) {
            if (at::Tensor parameter = names_->find(name); parameter.defined()) {
                return parameter;
            }
        }
        return {};
    }

    /// Returns the group that has the parameters; empty if it has to be added.
    [[nodiscard]] std::optional<std::size_t> find_group(const StateReader& in, std::size_t s,
                                                        const std::vector<at::Tensor>& parameters,
                                                        const Held& held,
                                                        const std::set<std::size_t>& taken) const {
        std::optional<std::set<std::size_t>> common;
        for (const at::Tensor& parameter : parameters) {
            const auto in_groups = held.groups.find(parameter.unsafeGetTensorImpl());
            if (in_groups == held.groups.end()) {
                continue;
            }
            if (!common) {
                common = in_groups->second;
            }
            std::erase_if(*common, [&](std::size_t g) {
                return !in_groups->second.contains(g) || taken.contains(g);
            });
        }
        if (!common) {
            const bool is_same =
                parameters.empty() && s < groups().size() && groups()[s].params().empty();
            return is_same ? std::optional(s) : std::nullopt;
        }
        if (common->empty()) {
            throw_divided(in, s);
        }
        return common->contains(s) ? s : *common->begin();
    }

    [[noreturn]] static void throw_divided(const StateReader& in, std::size_t group) {
        throw CheckpointError("RT-K3",
                              detail::concat("the parameters of \"", in.prefix(), group,
                                             "\" are grouped differently in the checkpoint and in "
                                             "the program; give the optimizer the same groups"));
    }

    torch::optim::Optimizer& optimizer_;
    const ParameterNames* names_;
};

} // namespace rtrain::checkpoint
