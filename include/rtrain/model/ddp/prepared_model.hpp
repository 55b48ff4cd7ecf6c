// SPDX-License-Identifier: Apache-2.0
/// @file
/// A prepared model without its type: the door between the handle that users hold and the engine
/// that averages gradients (engine.hpp).
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/model/ddp/join.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rtrain::detail {

class SharedWeights;

class PreparedModel : public Joinable {
public:
    [[nodiscard]] virtual const DataParallelOptions& options() const = 0;

    /// Gives buffers rank 0's values where the options say so. *Collective*. With gradients, throws
    /// ModelError [RT-M23] when the model is not the one that was prepared.
    virtual void begin_forward() = 0;
    /// Called for each tensor that forward returns, where a backward pass begins.
    virtual void end_forward(const at::Tensor& output) = 0;
    /// Called instead when an output of this type holds no tensor.
    virtual void end_forward_without_tensors(const char* type) = 0;
    /// After a forward that has thrown: throws the cause, where it is known.
    virtual void explain_failure() const {}
    /// The number, from 1, of the pass that is averaged next; 0: none is.
    [[nodiscard]] virtual std::uint64_t next_pass() const = 0;
    /// While false, backward accumulates gradients on this rank only.
    virtual void set_sync(bool sync) = 0;
    [[nodiscard]] virtual bool sync() const = 0;

    /// See DataParallel.
    virtual double clip(double max_norm, double norm_type, bool error_if_nonfinite) = 0;
    virtual void average_parameters() = 0;
    [[nodiscard]] virtual std::size_t bucket_count() const = 0;

    /// Parameters and buffers that each rank keeps separately.
    [[nodiscard]] virtual std::vector<at::Tensor> ignored() const = 0;
    /// Parameters that are equal on all ranks.
    [[nodiscard]] virtual std::vector<at::Tensor> shared() const = 0;
    /// Parameters whose writers all wait for copies in flight, and their parts in prepared
    /// optimizers.
    [[nodiscard]] virtual std::vector<at::Tensor> stepped() const = 0;
    /// The weights of a sharded model on several ranks; else null.
    [[nodiscard]] virtual std::shared_ptr<SharedWeights> weights() const { return nullptr; }

    /// This rank's elements of a parameter of a sharded model on several ranks, in one dimension;
    /// undefined for a parameter that each rank has.
    [[nodiscard]] virtual at::Tensor part_of(const at::Tensor& /*parameter*/) const { return {}; }
    /// The elements that such a part holds; null for other tensors.
    [[nodiscard]] virtual const checkpoint::PartOf* find_part(const at::Tensor& /*part*/) const {
        return nullptr;
    }
    /// Runs `write`, which writes parameters that part_of() has no part of, and parts of others,
    /// outside a step. *Collective* for a sharded model.
    virtual void write_weights(const std::function<void()>& write) { write(); }

    /// True if the model no longer exists.
    [[nodiscard]] virtual bool is_gone() const = 0;
    /// *Collective.* Throws ModelError [RT-M23, RT-M25] unless all ranks train the same model, the
    /// one that was prepared. Under no_sync() ranks may differ. With `later`, parameters that can
    /// be compared during training are added to it instead, on all ranks alike.
    virtual void check_parameters(checkpoint::Compared* later) = 0;
    /// Saves what the hook keeps between passes. Saving is *collective*.
    virtual void save_hook(StateWriter out, bool by_rows) = 0;
    virtual void load_hook(const StateReader& in) = 0;
};

/// *Collective*; the model must be the same on all ranks and gets rank 0's values. Throws
/// ModelError [RT-M1, RT-M2, RT-M5] and ConfigError [RT-C11, RT-C12, RT-C27, RT-C28].
[[nodiscard]] std::shared_ptr<PreparedModel>
prepare_model(std::shared_ptr<AnyBackend> backend, const std::shared_ptr<torch::nn::Module>& module,
              const DataParallelOptions& options);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/ddp/prepared_model_definitions.hpp>
#endif
