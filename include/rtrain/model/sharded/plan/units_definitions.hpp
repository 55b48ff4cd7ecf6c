// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door units.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/sharded/plan/units.hpp>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// Patterns of the blocks of a module's outermost containers, such as "layers.*".
RTRAIN_DOOR void find_blocks(const torch::nn::Module& module, const std::string& prefix,
                             std::vector<std::string>& patterns) {
    if (module.as<torch::nn::ModuleListImpl>() != nullptr ||
        module.as<torch::nn::SequentialImpl>() != nullptr) {
        patterns.push_back(prefix + "*");
        return;
    }
    for (const auto& child : module.named_children()) {
        find_blocks(*child.value(), prefix + child.key() + ".", patterns);
    }
}

/// The prefix of `name` that matches the components of `pattern`, where "*" matches any; else
/// empty.
[[nodiscard]] RTRAIN_DOOR std::string_view match_unit(std::string_view name,
                                                      std::string_view pattern) {
    const auto component = [](std::string_view text, std::size_t from) {
        return text.substr(from, std::min(text.find('.', from), text.size()) - from);
    };
    std::size_t at = 0;
    for (std::size_t from = 0; from <= pattern.size();) {
        const std::string_view wanted = component(pattern, from);
        if (at > name.size() || component(name, at).empty() ||
            (wanted != "*" && wanted != component(name, at))) {
            return {};
        }
        at += component(name, at).size() + 1;
        from += wanted.size() + 1;
    }
    return name.substr(0, at - 1);
}

[[nodiscard]] RTRAIN_DOOR std::vector<Unit>
plan_units(const torch::nn::Module& module, const std::vector<NamedParameter>& parameters,
           const std::vector<std::string>& patterns) {
    std::vector<std::string> tried = patterns;
    if (patterns.empty()) {
        find_blocks(module, "", tried);
    }
    std::vector<Unit> units;
    Unit rest{"the rest", {}};
    std::vector<bool> matches(tried.size(), false);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        std::string_view name;
        for (std::size_t p = 0; p < tried.size(); ++p) {
            const std::string_view match = match_unit(parameters[i].name, tried[p]);
            matches[p] = matches[p] || !match.empty();
            name = name.empty() ? match : name;
        }
        auto unit = std::find_if(units.begin(), units.end(),
                                 [&](const Unit& known) { return known.name == name; });
        if (!name.empty() && unit == units.end()) {
            unit = units.insert(units.end(), {std::string(name), {}});
        }
        (name.empty() ? rest : *unit).parameters.push_back(i);
    }
    for (std::size_t p = 0; p < patterns.size(); ++p) {
        if (!matches[p]) {
            throw ConfigError(
                "RT-C42",
                concat("no parameter of the model matches \"", patterns[p],
                       "\" of ShardedOptions::units; a pattern is the beginning of a parameter's "
                       "name, such as \"layers.*\", where each * matches one part between dots"));
        }
    }
    if (!rest.parameters.empty()) {
        units.push_back(rest);
    }
    return units;
}

} // namespace rtrain::detail
