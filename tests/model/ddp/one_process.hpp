// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks must agree with: the same passes in one process, on a module that is not prepared.
#pragma once

#include <doctest/doctest.h>

#include <torch/nn/module.h>

#include <map>
#include <string>

namespace test {

/// By the parameter's name; undefined where it has none.
using Gradients = std::map<std::string, torch::Tensor>;

/// The mean over ranks of the gradients of `module_of(rank)`, a module after that rank's passes. A
/// parameter that some rank leaves without a gradient counts as zeros there.
template <class ModuleOf>
Gradients mean_over_ranks(int size, ModuleOf&& module_of) {
    Gradients mean;
    for (int rank = 0; rank < size; ++rank) {
        const torch::nn::Module& module = module_of(rank);
        for (const auto& item : module.named_parameters()) {
            torch::Tensor& sum = mean[item.key()];
            if (const torch::Tensor& gradient = item.value().grad(); gradient.defined()) {
                const auto part = gradient.detach().to_dense() / size;
                sum = sum.defined() ? sum + part : part;
            }
        }
    }
    return mean;
}

/// That of one module, on which `passes(rank)` runs a rank's passes.
template <class Passes>
Gradients mean_gradients(torch::nn::Module& module, int size, Passes&& passes) {
    const auto mean = mean_over_ranks(size, [&](int rank) -> const torch::nn::Module& {
        module.zero_grad();
        passes(rank);
        return module;
    });
    module.zero_grad();
    return mean;
}

/// Checks that the gradients of `module` are those of `expected`; undefined or zeros where that has
/// none. Continues after a failure: a rank that left alone would leave the others waiting.
inline void check_gradients(const torch::nn::Module& module, const Gradients& expected) {
    for (const auto& item : module.named_parameters()) {
        CAPTURE(item.key());
        const auto found = expected.find(item.key());
        if (found == expected.end()) {
            FAIL_CHECK("not a parameter of the one process");
            continue;
        }
        const torch::Tensor& gradient = item.value().grad();
        if (!found->second.defined()) {
            CHECK((!gradient.defined() || gradient.eq(0).all().item<bool>()));
            continue;
        }
        if (!gradient.defined() || gradient.sizes() != found->second.sizes()) {
            FAIL_CHECK("undefined, or of another shape");
            continue;
        }
        const auto dense = gradient.detach().to_dense();
        const double error = (dense - found->second).abs().max().item<double>();
        const double scale = found->second.abs().max().item<double>();
        CHECK(error <= 1e-6 + 1e-5 * scale);
    }
}

} // namespace test
