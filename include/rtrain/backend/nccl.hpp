// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend over MPI ranks with a GPU each: GPU tensors travel over NCCL, everything else over MPI.
/// Not included by trainer.hpp; link rtrain::nccl and include it to use it:
/// @code
/// #include <rtrain/backend/nccl.hpp>
/// #include <rtrain/trainer.hpp>
/// rtrain::Trainer<rtrain::backend::Nccl> trainer(options);
/// @endcode
#pragma once

#include <rtrain/comm/nccl/types.hpp> // first: it says what is missing without NCCL

#include <rtrain/backend/capabilities.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/cuda_devices.hpp>
#include <rtrain/backend/device_choice.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/comm/calls/arguments.hpp>
#include <rtrain/comm/nccl/collectives.hpp>
#include <rtrain/comm/nccl/cuda.hpp>
#include <rtrain/comm/nccl/graph.hpp>
#include <rtrain/comm/nccl/nccl.hpp>
#include <rtrain/comm/nccl/shared_gpu.hpp>
#include <rtrain/comm/world/backoff.hpp>
#include <rtrain/config/config.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::backend {

/// One rank of MPI_COMM_WORLD, with a GPU. Collectives on GPU tensors are enqueued on a stream and
/// do not block the host; collectives on CPU tensors block.
///
/// A thread of this backend checks for failed ranks over MPI while a GPU collective is in flight.
/// It never does so while rtrain itself is in MPI; a training function that calls MPI itself must
/// initialise it with MPI_THREAD_MULTIPLE.
class Nccl {
    struct State;

public:
    /// Options of backend::Nccl.
    struct Options {
        /// Longest wait in one collective, and for the ranks to connect; then throws CommError
        /// [RT-N6].
        std::chrono::milliseconds timeout{std::chrono::minutes(10)};
        /// GPU of this rank, an index among those it can see, if the rule of
        /// backend/device_choice.hpp does not fit: for example 0 if every rank sees only its own.
        std::optional<int> device{};
        /// Options of the communication on the CPU.
        Mpi::Options mpi{};
    };

    Nccl() : Nccl(Options{}) {}
    explicit Nccl(const Options& options) : state_(std::make_shared<State>(options)) {}

    /// Number of ranks that a launcher has started; empty if the program was started alone.
    [[nodiscard]] static std::optional<int> launched_ranks() { return Mpi::launched_ranks(); }

    /// Number of GPUs that CUDA finds.
    [[nodiscard]] static int local_devices() { return cuda_devices(); }

    /// Joins the other ranks and selects a GPU; collective. Throws on all ranks if one of them
    /// fails: ConfigError [RT-C2, RT-N1 to RT-N4, RT-N10], CommError [RT-N5, RT-N6].
    void start(const ScalingConfig& scaling) {
        state_->gpu.reset();
        state_->cpu->start(scaling);
        int devices = 0;
        detail::succeed_together(state_->ranks, [&] {
            devices = require_cuda_devices();
            comm::require_same_nccl();
        });
        DeviceRequest request{
            {}, local_rank(), devices, scaling.gpus_per_worker, state_->options.device};
        gather_devices(request);
        detail::succeed_together(state_->ranks, [&] {
            const int index = choose_device(request);
            state_->device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
            set_device();
        });
        const GpuShare share =
            share_of(of_this_node(identity_of(request, device().index())), local_rank());
        state_->host_id = share.ranks > 1
                              ? detail::concat("rtrain-node", node_rank(), "-place", share.place)
                              : "";
        if (size() > 1) {
            state_->gpu = connect();
        }
    }

    /// After a failure that all ranks survive, and after finish(), which has aborted NCCL's
    /// communicator: reconnects to the other ranks, on the same GPUs; collective. Throws on all
    /// ranks CommError [RT-N5, RT-N6]. If a failed kernel has left a GPU that only a new process
    /// can use, throws CUDA's error.
    void rejoin() {
        state_->gpu.reset();
        (void)state_->cpu->rejoin();
        detail::succeed_together(state_->ranks, [this] {
            set_device(); // this may be a different thread from that of start()
            (void)(at::ones({1}).to(state_->device) + 1).item<float>();
        });
        if (size() > 1) {
            state_->gpu = connect();
        }
    }

    /// Ends the training function's communication on all ranks: reports this rank's outcome,
    /// returns that of each rank.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine) {
        Outcome outcome = mine;
        if (state_->gpu && !outcome) {
            outcome = detail::failure_in([this] { state_->gpu->drain(); });
        }
        if (state_->gpu && outcome) {
            state_->gpu->close(/*orderly=*/false);
        }
        const std::unique_lock lock(state_->mpi);
        std::vector<Outcome> outcomes = state_->cpu->finish(outcome);
        if (state_->gpu && !outcome) {
            state_->gpu->close(std::none_of(outcomes.begin(), outcomes.end(),
                                            [](const Outcome& o) { return o.has_value(); }));
        }
        return outcomes;
    }

    [[nodiscard]] int rank() const noexcept { return state_->cpu->rank(); }
    [[nodiscard]] int size() const noexcept { return state_->cpu->size(); }
    [[nodiscard]] int local_rank() const noexcept { return state_->cpu->local_rank(); }
    [[nodiscard]] int local_size() const noexcept { return state_->cpu->local_size(); }
    [[nodiscard]] int node_rank() const noexcept { return state_->cpu->node_rank(); }
    [[nodiscard]] at::Device device() const noexcept { return state_->device; }

    void all_reduce(at::Tensor& tensor, ReduceOp op) { state_->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) {
        if (on_cpu(tensor)) {
            const auto lock = state_->lock_mpi();
            state_->cpu->broadcast(tensor, root);
        } else if (state_->gpu) {
            state_->gpu->broadcast(tensor, root);
        }
    }
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        if (on_cpu(tensor)) {
            const auto lock = state_->lock_mpi();
            return state_->cpu->all_gather(tensor);
        }
        return state_->gpu ? state_->gpu->all_gather(tensor) : tensor.unsqueeze(0).clone();
    }
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
        if (on_cpu(tensor)) {
            const auto lock = state_->lock_mpi();
            return state_->cpu->reduce_scatter(tensor, op);
        }
        (void)comm::rows_of(tensor, size());
        return state_->gpu ? state_->gpu->reduce_scatter(tensor, op) : tensor[0].clone();
    }
    /// Returns a CUDA graph; recorded work may reduce gradients.
    [[nodiscard]] std::unique_ptr<comm::DeviceGraph> make_graph() {
        return std::make_unique<comm::NcclGraph>(device(), state_->gpu);
    }

    /// Blocks the host until all ranks have called it.
    void barrier() {
        const auto lock = state_->lock_mpi();
        state_->cpu->barrier();
    }

    /// A repeatable collective. On GPUs it overlaps with what the current stream does between
    /// start() and wait(); neither blocks the host. On CPU tensors start() blocks. The tensors are
    /// contiguous, keep their memory, and must not be accessed from start() to wait().
    class Handle {
    public:
        void start() { gpu_ ? gpu_->start() : blocking_(); }
        void poll() {
            if (gpu_) {
                gpu_->poll();
            }
        }
        void wait() {
            if (gpu_) {
                gpu_->wait();
            }
        }

    private:
        friend class Nccl;
        explicit Handle(comm::NcclHandle gpu) : gpu_(std::move(gpu)) {}
        explicit Handle(std::function<void()> blocking) : blocking_(std::move(blocking)) {}
        std::optional<comm::NcclHandle> gpu_;
        std::function<void()> blocking_; ///< used instead on CPU tensors
    };

    /// Reduces `tensor` in place.
    [[nodiscard]] Handle all_reduce_async(at::Tensor& tensor, ReduceOp op) {
        if (state_->gpu && !on_cpu(tensor)) {
            return Handle({state_->gpu, comm::nccl_all_reduce(tensor, op)});
        }
        return Handle([state = state_, tensor, op]() mutable { state->all_reduce(tensor, op); });
    }
    /// `row` receives row rank() of the reduction of `rows`, of shape (size, *row.sizes()). Throws
    /// CommError [RT-X13] for other shapes.
    [[nodiscard]] Handle reduce_scatter_async(const at::Tensor& rows, at::Tensor& row,
                                              ReduceOp op) {
        require_rows(rows, row);
        if (state_->gpu && !on_cpu(rows)) {
            return Handle({state_->gpu, comm::nccl_reduce_scatter(rows, row, op)});
        }
        return Handle([ranks = *this, rows, row, op]() mutable {
            row.copy_(ranks.reduce_scatter(rows, op));
        });
    }
    /// `rows`, of shape (size, *row.sizes()), receives the `row` of each rank; any type. Throws
    /// CommError [RT-X13] for other shapes.
    [[nodiscard]] Handle all_gather_async(const at::Tensor& row, at::Tensor& rows) {
        require_rows(rows, row);
        if (state_->gpu && !on_cpu(rows)) {
            return Handle({state_->gpu, comm::nccl_all_gather(row, rows)});
        }
        return Handle([ranks = *this, rows, row]() mutable { rows.copy_(ranks.all_gather(row)); });
    }

private:
    struct State {
        explicit State(const Options& given)
            : options(given), cpu(std::make_shared<Mpi>(given.mpi)), ranks(cpu) {}

        /// Also prevents the use of what a rank computed after its peers were lost.
        [[nodiscard]] std::unique_lock<std::mutex> lock_mpi() {
            if (gpu) {
                gpu->check();
                gpu->require_not_recording();
            }
            return std::unique_lock(mpi);
        }

        void all_reduce(at::Tensor& tensor, ReduceOp op) {
            if (on_cpu(tensor)) {
                const auto lock = lock_mpi();
                cpu->all_reduce(tensor, op);
            } else if (gpu) {
                gpu->all_reduce(tensor, op);
            }
        }

        Options options;
        std::shared_ptr<Mpi> cpu;
        detail::TheBackend<Mpi> ranks;
        std::mutex mpi; ///< held by the thread that is in MPI
        at::Device device{at::kCPU};
        std::string host_id;                        ///< for NCCL; empty unless ranks share this GPU
        std::shared_ptr<comm::NcclCollectives> gpu; ///< empty on a single rank
    };

    static bool on_cpu(const at::Tensor& tensor) {
        return !tensor.defined() || tensor.device().is_cpu();
    }
    void require_rows(const at::Tensor& rows, const at::Tensor& row) const {
        (void)comm::rows_of(rows, size());
        if (rows.sizes().slice(1) != row.sizes() || rows.scalar_type() != row.scalar_type() ||
            !rows.is_contiguous() || !row.is_contiguous()) {
            throw CommError("RT-X13",
                            detail::concat("a row of a contiguous tensor of ", rows.scalar_type(),
                                           ", of shape ", rows.sizes(),
                                           ", cannot be communicated as one of ", row.scalar_type(),
                                           ", of shape ", row.sizes()));
        }
    }

    void set_device() const { c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(state_->device); }

    /// Returns the texts of this node's ranks, by local rank; collective.
    [[nodiscard]] std::vector<std::string> of_this_node(const std::string& mine) {
        const std::string node = std::to_string(node_rank()) + ' ';
        std::vector<std::string> texts = detail::all_gather(state_->ranks, node + mine);
        std::erase_if(texts, [&](const std::string& text) { return !text.starts_with(node); });
        for (std::string& text : texts) {
            text.erase(0, node.size());
        }
        return texts;
    }

    /// Gathers the devices that the ranks of this node see, by local rank; collective.
    void gather_devices(DeviceRequest& request) {
        const char* const mine = std::getenv("CUDA_VISIBLE_DEVICES");
        for (const std::string& list :
             of_this_node(mine == nullptr ? "" : std::string("=") + mine)) {
            request.visible.push_back(list.empty() ? std::nullopt : std::optional(list.substr(1)));
        }
        std::string addresses;
        for (int device = 0; device < request.devices; ++device) {
            addresses += comm::pci_address(device) + " ";
        }
        for (const std::string& all : of_this_node(addresses)) {
            auto text = detail::strict(std::istringstream(all));
            request.addresses.emplace_back(std::istream_iterator<std::string>(text),
                                           std::istream_iterator<std::string>());
        }
    }

    /// Collective. All ranks monitor each other until all are connected or one is not.
    [[nodiscard]] std::shared_ptr<comm::NcclCollectives> connect() {
        Mpi& cpu = *state_->cpu;
        at::Tensor id = at::zeros({static_cast<std::int64_t>(sizeof(ncclUniqueId))}, at::kByte);
        ncclUniqueId name;
        detail::succeed_together(state_->ranks, [&] {
            if (rank() == 0) {
                name = comm::new_nccl_id();
                std::memcpy(id.mutable_data_ptr(), &name, sizeof name);
            }
        });
        cpu.broadcast(id, 0);
        std::memcpy(&name, id.const_data_ptr(), sizeof name);

        const comm::SharedGpu environment(state_->host_id);
        std::unique_ptr<comm::NcclCommunicator> communicator;
        detail::succeed_together(state_->ranks, [&] {
            communicator = std::make_unique<comm::NcclCommunicator>(name, rank(), size());
        });
        const auto is_late = [&, begun = comm::Backoff::Clock::now()] {
            const std::chrono::duration<double> waited = comm::Backoff::Clock::now() - begun;
            return waited >= state_->options.timeout;
        };
        enum Progress : int { connected, connecting, gave_up };
        Progress slowest = connecting;
        ncclResult_t state = ncclInProgress;
        while (slowest == connecting) {
            state = communicator->state();
            at::Tensor progress = at::full({1}, gave_up, at::kInt);
            if (state == ncclSuccess || (state == ncclInProgress && !is_late())) {
                progress.fill_(state == ncclSuccess ? connected : connecting);
            }
            cpu.all_reduce(progress, ReduceOp::max);
            slowest = static_cast<Progress>(progress.item<int>());
            if (slowest == connecting) {
                constexpr std::chrono::milliseconds pause{5};
                std::this_thread::sleep_for(pause);
            }
        }
        detail::succeed_together(state_->ranks, [&] {
            if (slowest == gave_up && state == ncclInProgress && is_late()) {
                throw CommError("RT-N6",
                                detail::concat("NCCL did not connect within ",
                                               state_->options.timeout.count(),
                                               " ms; set NCCL_DEBUG=INFO to log its attempts"));
            }
            if (state != ncclSuccess && state != ncclInProgress) {
                throw CommError("RT-N5",
                                "NCCL could not connect: " + communicator->describe(state));
            }
        });
        return std::make_shared<comm::NcclCollectives>(std::move(communicator), device(), size(),
                                                       watchdog_options());
    }

    [[nodiscard]] comm::NcclWatchdog::Options watchdog_options() const {
        return {.rank = rank(),
                .timeout = state_->options.timeout,
                .look_at_peers = [state = state_.get()](const char* what) {
                    // A training thread that is in MPI checks by itself.
                    if (const std::unique_lock lock(state->mpi, std::try_to_lock); lock) {
                        state->cpu->check_peers(what);
                    }
                }};
    }

    std::shared_ptr<State> state_;
};

static_assert(Backend<Nccl> && AsyncBackend<Nccl> && backend::CanShardOnDevice<Nccl>);

} // namespace rtrain::backend
