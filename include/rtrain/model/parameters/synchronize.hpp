// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes a model the same on all ranks: checks that it can be, and gives all of them rank 0's
/// values.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::detail {

using Names = std::vector<std::string>;

[[nodiscard]] inline bool contains(const Names& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// A model's parameters, each once even when two modules share it, except for ignored ones.
[[nodiscard]] inline std::vector<NamedParameter>
distinct_parameters(const torch::nn::Module& module, const Names& ignored) {
    std::vector<NamedParameter> parameters;
    std::unordered_set<const void*> known;
    for (const auto& item : module.named_parameters()) {
        if (!contains(ignored, item.key()) &&
            known.insert(item.value().unsafeGetTensorImpl()).second) {
            parameters.push_back({item.key(), item.value()});
        }
    }
    return parameters;
}

/// True if there is a parameter to train together.
[[nodiscard]] inline bool is_trainable(const torch::nn::Module& module, const Names& ignored) {
    const auto parameters = distinct_parameters(module, ignored);
    return std::any_of(parameters.begin(), parameters.end(), [](const NamedParameter& parameter) {
        return parameter.tensor.requires_grad();
    });
}

/// Buffers as memory to overwrite while autograd holds them: autograd treats a tensor as changed
/// when its version changes, and forbids backward. PyTorch's DDP also keeps the version.
[[nodiscard]] inline std::vector<at::Tensor> unversioned_buffers(const torch::nn::Module& module,
                                                                 const Names& ignored) {
    std::vector<at::Tensor> buffers;
    for (const auto& item : module.named_buffers()) {
        if (!contains(ignored, item.key())) {
            buffers.push_back(item.value().variable_data());
        }
    }
    return buffers;
}

/// Parameters and buffers of these names.
[[nodiscard]] inline std::vector<at::Tensor> tensors_named(const torch::nn::Module& module,
                                                           const Names& names) {
    std::vector<at::Tensor> tensors;
    for (const auto& items : {module.named_parameters(), module.named_buffers()}) {
        for (const auto& item : items) {
            if (contains(names, item.key())) {
                tensors.push_back(item.value());
            }
        }
    }
    return tensors;
}

/// Throws ConfigError [RT-C27] for a name that the model does not have.
inline void check_ignored(const torch::nn::Module& module, const Names& ignored) {
    for (const std::string& name : ignored) {
        if (!module.named_parameters().contains(name) && !module.named_buffers().contains(name)) {
            throw ConfigError("RT-C27", concat("the model has no parameter or buffer \"", name,
                                               "\" to be ignored; names are those of "
                                               "named_parameters() and named_buffers()"));
        }
    }
}

/// One line for each parameter and buffer that is not ignored.
[[nodiscard]] inline std::string describe(const torch::nn::Module& module, const Names& ignored) {
    auto text = strict(std::ostringstream());
    for (const auto& item : module.named_parameters()) {
        if (contains(ignored, item.key())) {
            continue;
        }
        text << "parameter " << item.key() << ' ' << item.value().scalar_type()
             << item.value().sizes() << (item.value().requires_grad() ? "" : " frozen") << '\n';
    }
    for (const auto& item : module.named_buffers()) {
        if (contains(ignored, item.key())) {
            continue;
        }
        text << "buffer " << item.key() << ' ' << item.value().scalar_type() << item.value().sizes()
             << '\n';
    }
    return text.str();
}

/// Returns the rest of those lines of a description that begin with the word `kind`.
[[nodiscard]] inline std::vector<std::string> described(const std::string& text,
                                                        const std::string& kind) {
    std::vector<std::string> found;
    auto lines = strict(std::istringstream(text));
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(kind + ' ')) {
            found.push_back(line.substr(kind.size() + 1));
        }
    }
    return found;
}

/// The first items in which two lists differ, one from each; empty when they do not.
[[nodiscard]] inline std::string first_difference(const std::vector<std::string>& mine,
                                                  const std::vector<std::string>& theirs) {
    const auto [left, right] =
        std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    if (left == mine.end() && right == theirs.end()) {
        return "";
    }
    return concat("`", left == mine.end() ? "none" : *left, "` against `",
                  right == theirs.end() ? "none" : *right, "`");
}

/// Describes the first difference of a model and its options from rank 0's, both in the format of
/// describe(): parameters are compared with parameters, buffers with buffers, options with options.
[[nodiscard]] inline std::string first_difference(const std::string& mine,
                                                  const std::string& theirs) {
    for (const std::string kind : {"parameter", "buffer"}) {
        const auto left = described(mine, kind);
        const auto right = described(theirs, kind);
        const std::string first = first_difference(left, right);
        if (left.size() != right.size()) {
            return concat("it has ", left.size(), " ", kind, "s, rank 0's has ", right.size(),
                          "; the first that differs is ", first);
        }
        if (!first.empty()) {
            return concat("the ", kind, " ", first);
        }
    }
    const auto pairs = [](const std::string& text) { // "name value"
        std::vector<std::string> options;
        auto words = strict(std::istringstream(described(text, "options").at(0)));
        for (std::string name, value; words >> name >> value;) {
            options.push_back(name + " " + value);
        }
        return options;
    };
    const std::string option = first_difference(pairs(mine), pairs(theirs));
    return option.empty() ? first_difference(described(mine, "options"), // a value of several words
                                             described(theirs, "options"))
                          : "the option " + option;
}

/// Collective. Throws on all ranks: ModelError RT-M1 if there is nothing to train, RT-M2 if models
/// or options differ; ConfigError RT-C11, RT-C12 and RT-C27.
inline void check_model(HookRanks& backend, torch::nn::Module& module,
                        const DataParallelOptions& options) {
    const std::string mine = describe(module, options.ignore) + describe(options);
    const std::string expected = broadcast(backend, mine, 0);
    succeed_together(backend, [&] {
        check_options(options);
        check_ignored(module, options.ignore);
        if (!is_trainable(module, options.ignore)) {
            throw ModelError("RT-M1", concat("the model has ",
                                             module.parameters().empty() ? "no parameters"
                                                                         : "only frozen parameters",
                                             ", so there is nothing to train; a model for "
                                             "inference needs no prepare()"));
        }
        if (mine != expected) {
            throw ModelError(
                "RT-M2",
                concat("the model differs from that of rank 0: ", first_difference(mine, expected),
                       "; prepare the same model with the same options on all ranks"));
        }
    });
}

/// Passes `communicate`, which changes its argument in place, the values of `tensors` in few
/// messages: tensors of one type are sent together, up to 64 MiB at a time.
template <class Communicate>
void coalesced(std::vector<at::Tensor> tensors, Communicate&& communicate) {
    constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
    const torch::NoGradGuard no_grad;
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return a.scalar_type() < b.scalar_type();
    });
    for (std::size_t begin = 0; begin < tensors.size();) {
        std::vector<at::Tensor> flat;
        std::int64_t bytes = 0;
        std::size_t end = begin;
        for (; end < tensors.size() && bytes < most_bytes &&
               tensors[end].scalar_type() == tensors[begin].scalar_type();
             ++end) {
            flat.push_back(tensors[end].flatten());
            bytes += static_cast<std::int64_t>(tensors[end].nbytes());
        }
        at::Tensor together = at::cat(flat);
        communicate(together);
        std::int64_t offset = 0;
        std::vector<at::Tensor> to;
        std::vector<at::Tensor> from;
        for (; begin < end; ++begin) {
            const std::int64_t elements = tensors[begin].numel();
            to.push_back(tensors[begin]);
            from.push_back(
                together.slice(0, offset, offset + elements).view(tensors[begin].sizes()));
            offset += elements;
        }
        at::_foreach_copy_(to, from); // on a device, one kernel for all
    }
}

/// Overwrites `tensors` with those of rank `root`.
inline void broadcast_coalesced(HookRanks& backend, std::vector<at::Tensor> tensors, int root = 0) {
    coalesced(std::move(tensors), [&](at::Tensor& values) { backend.broadcast(values, root); });
}

/// Overwrites `tensors` with their mean over ranks.
inline void average_coalesced(HookRanks& backend, std::vector<at::Tensor> tensors) {
    coalesced(std::move(tensors),
              [&](at::Tensor& values) { backend.all_reduce(values, ReduceOp::mean); });
}

} // namespace rtrain::detail
