// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine of a sharded model: weights that a node shares (shared_weights.hpp), and gradients of
/// which each rank has its part (gradient_shards.hpp). Otherwise like engine.hpp. On one rank
/// nothing is shared, and it behaves like that engine.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/ddp/engine.hpp>
#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/model/parameters/require_same.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/model/sharded/device/device_transport.hpp>
#include <rtrain/model/sharded/gradients/gradient_shards.hpp>
#include <rtrain/model/sharded/host/host_transport.hpp>
#include <rtrain/model/sharded/host/numa_ranks.hpp>
#include <rtrain/model/sharded/plan/sharded_check.hpp>
#include <rtrain/model/sharded/plan/units.hpp>
#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::detail {

class ShardedEngine final : public Engine {
public:
    ShardedEngine(const std::shared_ptr<AnyBackend>& ranks,
                  const std::shared_ptr<torch::nn::Module>& module, const ShardedOptions& options)
        : ShardedEngine(ranks, module, options,
                        std::make_shared<std::shared_ptr<SharedWeights>>()) {}

    [[nodiscard]] std::shared_ptr<SharedWeights> weights() const override { return weights_; }

    [[nodiscard]] std::vector<at::Tensor> stepped() const override {
        return weights_ ? weights_->stepped() : Engine::stepped();
    }

    [[nodiscard]] at::Tensor part_of(const at::Tensor& parameter) const override {
        const auto number = weights_ ? weights_->find(parameter) : std::nullopt;
        return number ? weights_->part(*number) : at::Tensor();
    }
    [[nodiscard]] const checkpoint::PartOf* find_part(const at::Tensor& part) const override {
        return weights_ ? weights_->find_part(part) : nullptr;
    }
    void write_weights(const std::function<void()>& write) override {
        if (weights_) {
            weights_->write_parts(write);
        } else {
            write();
        }
    }

    void begin_forward() override {
        if (weights_) {
            weights_->rethrow_failure();
            weights_->require_in_place();
            weights_->begin_pass();
        }
        Engine::begin_forward();
    }

    /// See ShardedParallel.
    void edit(const std::function<void()>& change) {
        const UserCall::In in(UserCall::edit);
        const torch::NoGradGuard no_grad;
        process::DeferredCopy::finish_all(); // of all ranks: they synchronize before one writes
        if (weights_) {
            std::exception_ptr failure; // thrown at the end, once all ranks agree
            weights_->edit([&] {
                try {
                    change();
                } catch (...) {
                    failure = std::current_exception();
                }
            });
            spread_buffers();
            succeed_together(backend(), [&] {
                if (failure) {
                    std::rethrow_exception(failure);
                }
            });
        } else {
            change();
        }
    }

    void read(const std::function<void()>& read) {
        const UserCall::In in(UserCall::gathered);
        if (weights_) {
            weights_->read(read);
        } else {
            read();
        }
    }
    void explain_failure() const override {
        if (weights_) {
            weights_->rethrow_failure();
        }
    }

    void set_sync(bool sync) override {
        if (steps_in_backward_ && !sync) {
            refuse_with_step_in_backward("no_sync() adds gradients of several passes up");
        }
        Engine::set_sync(sync);
    }

    double clip(double max_norm, double norm_type, bool error_if_nonfinite) override {
        if (steps_in_backward_) {
            refuse_with_step_in_backward("clip_grad_norm_() needs the norm of all gradients");
        }
        const UserCall::In in(UserCall::clip);
        const torch::NoGradGuard no_grad;
        return detail::clip(gradients(), max_norm, norm_type, error_if_nonfinite, [&](double norm) {
            const at::Tensor mine = at::full({1}, weights_ ? norm : 0, at::kDouble);
            return weights_ ? at::linalg_vector_norm(backend().all_gather(mine), norm_type)
                                  .item<double>()
                            : norm;
        });
    }

    void average_parameters() override {
        throw ConfigError(
            "RT-C12", "ranks of a sharded model share its parameters, so they cannot train alone "
                      "and average, as LocalSgd does; prepare the model with DataParallelOptions");
    }
    void set_join(JoinedRanks* joined, std::size_t number) override {
        if (joined != nullptr) {
            throw ConfigError("RT-C12",
                              "ranks of a sharded model step together, but ranks that have ended "
                              "under join() do not; prepare the model with DataParallelOptions");
        }
        Engine::set_join(joined, number);
    }

private:
    using Slot = std::shared_ptr<std::shared_ptr<SharedWeights>>;

    /// `made`: set while the base is constructed.
    ShardedEngine(const std::shared_ptr<AnyBackend>& ranks,
                  const std::shared_ptr<torch::nn::Module>& module, const ShardedOptions& options,
                  const Slot& made)
        : Engine(ranks, module, checked(ranks, *module, options),
                 [made, ranks, module, options](const auto& parameters, const auto& of) {
                     auto members = of.group ? ranks->over(of.group) : ranks;
                     if (options.share == Share::numa && device_of(*members).is_cpu()) {
                         members = over_numa_nodes(members);
                     }
                     *made = std::make_shared<SharedWeights>(
                         members, shard_ranks(*members, options), *module, parameters, options);
                     return std::make_unique<GradientShards>(*made, module->name(), parameters,
                                                             options);
                 }),
          weights_(*made), steps_in_backward_(options.step_in_backward) {}

    /// *Collective.* Throws for a model or options that cannot be sharded.
    [[nodiscard]] static const DataParallelOptions&
    checked(const std::shared_ptr<AnyBackend>& ranks, const torch::nn::Module& module,
            const ShardedOptions& options) {
        check_options(options);
        const auto& parallel = options.data_parallel;
        const auto members = parallel.group ? ranks->over(parallel.group) : ranks;
        if (options.level == Shard::parameters || !options.units.empty()) { // or misspelt
            (void)plan_units(module, distinct_parameters(module, parallel.ignore), options.units);
        }
        if (members->size() == 1) {
            return parallel;
        }
        require_ranks(*members, options);
        succeed_together(*members, [&] {
            check_sharded(module, distinct_parameters(module, parallel.ignore),
                          device_of(*members));
            if (options.level == Shard::parameters) {
                require_operators(module, device_of(*members));
            }
        });
        require_same(*members, "RT-M2", as_number(options), [&] {
            return concat("ranks prepare a model with different options: on rank ", members->rank(),
                          " slot_bytes is ", options.slot_bytes, ", step_in_backward ",
                          options.step_in_backward, ", level ", static_cast<int>(options.level),
                          ", share ", static_cast<int>(options.share), ", parameter_type ",
                          options.parameter_type ? "set" : "not set", ", offload ",
                          options.offload.index(), ", resident_units ", options.resident_units,
                          ", ", options.units.size(), " units are named",
                          "; prepare the model with the same options on all ranks");
        });
        const auto* const ranks_of = members->communicator();
        if (ranks_of != nullptr && options.share != Share::none && ranks_of->local_size() > 1 &&
            !ranks_of->shares_memory()) {
            console::warn("rank %d has a separate copy of the weights of %s, as with Share::none: "
                          "it cannot share memory with the other ranks of this node",
                          members->rank(), module.name().c_str());
        }
        return parallel;
    }
    /// The device on which the ranks compute.
    [[nodiscard]] static at::Device device_of(const AnyBackend& ranks) {
        return ranks.device().value_or(at::kCPU);
    }
    static void require_ranks(const AnyBackend& ranks, const ShardedOptions& options) {
        if (device_of(ranks).is_cpu()) {
            if (ranks.communicator() == nullptr) {
                throw ConfigError("RT-C41", "a sharded model needs a backend whose ranks can share "
                                            "memory and send messages, such as backend::Mpi, but "
                                            "this one has no `comm::Communicator& communicator()`");
            }
            return;
        }
        if (!ranks.shards_on_device()) {
            throw ConfigError(
                "RT-C41",
                concat("a model that is sharded on ", device_of(ranks),
                       " needs a backend that communicates there, such as backend::Nccl, but this "
                       "one has no `reduce_scatter_async` and `all_gather_async`"));
        }
        if (std::holds_alternative<offload::Disk>(options.offload)) {
            throw ConfigError(
                "RT-C12",
                concat("offload::Disk is for optimizers on the CPU, but this rank computes on ",
                       device_of(ranks), "; remove offload::Disk"));
        }
    }
    [[nodiscard]] static std::unique_ptr<ShardTransport>
    shard_ranks(AnyBackend& ranks, const ShardedOptions& options) {
        if (!device_of(ranks).is_cpu()) {
            return std::make_unique<DeviceTransport>(ranks);
        }
        return std::make_unique<HostTransport>(*ranks.communicator(), options.share != Share::none);
    }
    /// A hash of the options.
    [[nodiscard]] static std::int64_t as_number(const ShardedOptions& options) {
        constexpr std::uint64_t prime = 1000003;
        auto number = static_cast<std::uint64_t>(options.slot_bytes);
        for (const int choice :
             {options.step_in_backward ? 1 : 0, static_cast<int>(options.level),
              static_cast<int>(options.share), options.parameter_type ? 1 : 0,
              static_cast<int>(options.offload.index()), options.resident_units}) {
            number = prime * number + static_cast<std::uint64_t>(choice);
        }
        for (const std::string& unit : options.units) {
            number = prime * number + std::hash<std::string>()(unit);
        }
        return static_cast<std::int64_t>(number);
    }

    std::shared_ptr<SharedWeights> weights_;
    bool steps_in_backward_;
};

} // namespace rtrain::detail
