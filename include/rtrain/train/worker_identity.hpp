// SPDX-License-Identifier: Apache-2.0
/// @file
/// WorkerIdentity: a worker's rank, node and device.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/train/preemption.hpp>

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <utility>

namespace rtrain {

/// Rank, node and device of a worker.
class WorkerIdentity {
public:
    WorkerIdentity(const WorkerIdentity&) = delete;
    WorkerIdentity& operator=(const WorkerIdentity&) = delete;

    /// This rank, from 0 to size() - 1.
    [[nodiscard]] int rank() const { return backend_->rank(); }
    /// Number of ranks.
    [[nodiscard]] int size() const { return backend_->size(); }
    /// This rank among those on the same node.
    [[nodiscard]] int local_rank() const { return backend_->local_rank(); }
    /// Number of ranks on this node.
    [[nodiscard]] int local_size() const { return backend_->local_size(); }
    /// Index of this node; nodes are ordered by their lowest rank.
    [[nodiscard]] int node_rank() const { return backend_->node_rank(); }
    /// The device that this rank computes on.
    [[nodiscard]] at::Device device() const { return backend_->device().value_or(at::kCPU); }

    /// True if the trainer was given a data set of this name.
    [[nodiscard]] bool has_dataset(const std::string& name) const {
        return options_.datasets.contains(name);
    }
    /// RunConfig::fast_dev_run: the number of batches after which loops end; 0: none.
    [[nodiscard]] int fast_dev_run() const noexcept { return options_.run.fast_dev_run; }

    /// TrainerOptions::config.
    [[nodiscard]] const Config& config() const noexcept { return options_.config; }

protected:
    WorkerIdentity(std::shared_ptr<detail::AnyBackend> backend, const TrainerOptions& options)
        : backend_(std::move(backend)), options_(options) {}
    ~WorkerIdentity() = default;

    [[nodiscard]] const std::shared_ptr<detail::AnyBackend>& ranks() const {
        detail::require_attempt(ProcessContext::current().attempt);
        return backend_;
    }
    [[nodiscard]] const TrainerOptions& options() const noexcept { return options_; }

private:
    std::shared_ptr<detail::AnyBackend> backend_;
    const TrainerOptions& options_;
};

} // namespace rtrain
