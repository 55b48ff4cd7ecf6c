// SPDX-License-Identifier: Apache-2.0
/// @file
/// Perplexity of a language model. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <cstdint>
#include <optional>

namespace rtrain::metric {

/// Options of Perplexity.
struct PerplexityOptions {
    /// Tokens with this target do not count.
    std::optional<std::int64_t> ignore_index{};
};

/// exp of the mean, over tokens, of -log p(target).
class Perplexity final : public Comparison {
public:
    explicit Perplexity(const PerplexityOptions& options = {});

    /// Logits of shape (..., V), and targets of shape (...). Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN without tokens.
    [[nodiscard]] Value compute() const override;

private:
    PerplexityOptions options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/perplexity_definitions.hpp>
#endif
