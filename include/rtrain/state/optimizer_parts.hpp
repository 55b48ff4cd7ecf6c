// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizers that hold parts of parameters: so that what they keep is saved, and loaded, under
/// the names and shapes of the whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace rtrain::checkpoint {

/// Which elements of a parameter a tensor of one dimension holds: those from `begin` on, counted as
/// they lie in memory. Where `strides` are not those of a contiguous tensor, it holds all or none.
struct PartOf {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    bool is_contiguous = true;
    std::int64_t begin = 0;
};

/// An optimizer some of whose parameters may be parts.
class HoldsParts {
public:
    /// Null for a tensor that is a whole parameter.
    [[nodiscard]] virtual const PartOf* part_of(const at::Tensor& parameter) const = 0;

protected:
    HoldsParts() = default;
    HoldsParts(const HoldsParts&) = default;
    HoldsParts& operator=(const HoldsParts&) = default;
    ~HoldsParts() = default;
};

} // namespace rtrain::checkpoint
