// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizers that hold parts of parameters; their state is saved and loaded under the names and
/// shapes of the whole parameters.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <typeinfo>
#include <vector>

namespace rtrain::checkpoint {

/// Elements of a parameter that a 1-D tensor holds: those from `begin` on, in memory order. If
/// `strides` are not those of a contiguous tensor, it holds all or none.
struct PartOf {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    bool is_contiguous = true;
    std::int64_t begin = 0;
};

/// Converts elements of a part from memory order to row-major order.
[[nodiscard]] inline at::Tensor in_rows(const PartOf& part, const at::Tensor& elements) {
    return part.is_contiguous || elements.numel() == 0
               ? elements
               : elements.as_strided(part.shape, part.strides).reshape({-1});
}
/// The inverse of in_rows().
[[nodiscard]] inline at::Tensor in_memory(const PartOf& part, const at::Tensor& rows) {
    if (part.is_contiguous || rows.numel() == 0) {
        return rows;
    }
    at::Tensor memory = at::empty_like(rows);
    memory.as_strided(part.shape, part.strides).copy_(rows.view(part.shape));
    return memory;
}

/// A prepared optimizer, some of whose parameters may be parts.
class HoldsParts {
public:
    /// Null for a tensor that is a whole parameter.
    [[nodiscard]] virtual const PartOf* part_of(const at::Tensor& parameter) const = 0;
    /// The parameter that a tensor is a part of; the tensor itself if it is whole.
    [[nodiscard]] virtual at::Tensor whole_of(const at::Tensor& parameter) const = 0;
    /// The class that was prepared.
    [[nodiscard]] virtual const std::type_info& prepared_class() const = 0;

protected:
    HoldsParts() = default;
    HoldsParts(const HoldsParts&) = default;
    HoldsParts& operator=(const HoldsParts&) = default;
    ~HoldsParts() = default;
};

} // namespace rtrain::checkpoint
