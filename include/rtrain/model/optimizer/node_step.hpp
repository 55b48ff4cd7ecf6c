// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optimizer's step of a node: its ranks have the same gradients, so each steps a slice of each
/// large parameter, in one copy of parameters and moments that the node shares.
///
/// A rank's tensors are a private view of that copy: a page is the node's until this process writes
/// to it. So code that changes parameters or moments, such as a step by this rank alone or a loaded
/// checkpoint, changes them for this rank, as in separate memory. The next common step finds the
/// pages written, takes this rank's slices from them, and drops them.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rtrain::comm {
class Communicator;
} // namespace rtrain::comm

namespace rtrain::detail {

class NodeCopy;

class NodeStep {
public:
    NodeStep();
    NodeStep(NodeStep&& other) noexcept;
    ~NodeStep();

    /// Smaller parameters are stepped by each rank.
    static constexpr std::size_t least_bytes = std::size_t{1} << 16;
    /// Unless an option says otherwise, so are all if they and their moments have fewer bytes.
    static constexpr std::size_t least_bytes_of_all = std::size_t{1} << 27;

    /// Begins a step. Returns true if each rank steps its slices, until end(): the ranks of the
    /// node have the same gradients, and the optimizer, of which parameters have up to `moments`
    /// tensors of state, is worth it. *Collective* then. Throws what a wait for ranks throws.
    [[nodiscard]] bool begin(torch::optim::Optimizer& optimizer, std::size_t moments);
    /// Ends the step when all ranks of the node have stepped their slices.
    void end();

    /// The tensors of a step of one parameter.
    struct Tensors {
        at::Tensor& parameter;
        at::Tensor& gradient; ///< with the parameter's layout
        std::array<at::Tensor, 3>& moments;
    };
    /// During a common step: replaces the tensors by this rank's slices, and the optimizer's
    /// moments by those of the node, if the node steps the parameter.
    void cut(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
             const Tensors& tensors) const;

private:
    void share(comm::Communicator& ranks, const std::vector<at::Tensor>& parameters,
               std::size_t moments);

    std::weak_ptr<const void> model_; ///< for which copy_ was made, or could not be
    std::unique_ptr<NodeCopy> copy_;
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/optimizer/node_step_definitions.hpp>
#endif
