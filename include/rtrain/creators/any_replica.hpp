// SPDX-License-Identifier: Apache-2.0
/// @file
/// AnyReplica: the model, data and optimizer of a rank of a CreatorTrainer, without their types.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/creators/stats.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace rtrain::detail {

/// A sum of scalars that a device computes; only total() waits for it.
class DeviceSum {
public:
    void add(const at::Tensor& scalar, std::int64_t weight = 1);
    void reset(double total);
    [[nodiscard]] double total() const;

private:
    double known_ = 0;
    at::Tensor on_device_; ///< the rest
};

/// Sums over the batches of this rank. Times are in seconds.
struct BatchSums {
    std::int64_t batches = 0;
    std::int64_t rows = 0;
    DeviceSum loss{}; ///< of all rows
    double data = 0;
    double forward = 0;
    double backward = 0;
    double step = 0;
    bool has_classes = false; ///< as targets
    DeviceSum correct{};      ///< rows whose class was predicted

    void save(StateWriter& out) const;
    void load(const StateReader& in);
};

/// The results of train() and validate(), from the sums of all ranks. *Collective.*
[[nodiscard]] TrainStats train_stats(WorkerLoops& worker, const BatchSums& sums,
                                     double learning_rate);
[[nodiscard]] ValidationStats validation_stats(WorkerLoops& worker, const BatchSums& sums);
/// The same as metrics of a report, without an accuracy if there is none.
[[nodiscard]] Config metrics_of(const ValidationStats& stats);

class AnyReplica {
public:
    AnyReplica() = default;
    AnyReplica(const AnyReplica&) = delete;
    AnyReplica& operator=(const AnyReplica&) = delete;
    virtual ~AnyReplica() = default;

    /// Adds the model, the optimizer and the schedule to a state.
    virtual void add_to(State& state) = 0;
    /// Adds the model.
    virtual void add_model_to(State& state) = 0;

    /// Trains on the batches of an epoch, at most `num_steps`. *Collective.*
    virtual void train_epoch(BatchSums& sums, std::optional<std::int64_t> num_steps) = 0;
    /// Steps a schedule of epochs.
    virtual void end_epoch() = 0;
    /// Evaluates the model. *Collective.*
    virtual void validate(BatchSums& sums) = 0;
    /// True if there are validation data.
    [[nodiscard]] virtual bool can_validate() const = 0;
    /// Steps the schedule by hand. Returns false if there is none.
    [[nodiscard]] virtual bool step_schedule(std::optional<double> metric) = 0;
    [[nodiscard]] virtual double learning_rate() const = 0;

    /// Reads data sets from these files from now on; empty: those of data_creator. Call it after a
    /// state is loaded.
    virtual void use_data(const std::string& train, const std::string& validation) = 0;
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/creators/any_replica_definitions.hpp>
#endif
