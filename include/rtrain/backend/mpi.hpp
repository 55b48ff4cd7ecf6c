// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend over MPI ranks on CPUs. A program started alone launches its own mpirun (launch/).
#pragma once

#include <rtrain/backend/allocator.hpp>
#include <rtrain/backend/outcome.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/threads.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/ulfm.hpp>
#include <rtrain/config.hpp>
#include <rtrain/launch/descriptor_limit.hpp>
#include <rtrain/launch/environment.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::backend {

/// One rank of MPI_COMM_WORLD.
class Mpi {
public:
    struct Options {
        /// Longest wait in one collective, then CommError [RT-X2].
        std::chrono::seconds timeout{1800};
        /// After a rank has failed: how long the others have to notice before the job is ended.
        std::chrono::seconds failure_patience{30};
        /// Compare the calls of all ranks before each collective: an order that differs is then an
        /// error at once (RT-X10), also between nodes. Costs a message to each rank. Also set by
        /// RTRAIN_CHECK_CALLS=1 in the environment.
        bool check_calls = false;
    };

    Mpi() = default;
    explicit Mpi(Options options) : options_(options) {}

    /// Ranks that a launcher has started; empty when the program was started alone.
    [[nodiscard]] static std::optional<int> launched_ranks() { return launch::ranks(); }

    /// Whether the MPI that this program is compiled for can go on after a rank has died.
    static constexpr bool can_survive_deaths = comm::has_ulfm;
    /// Whether this job can, too. Once start() was called.
    [[nodiscard]] bool survives_deaths() const {
        return comm::LivingRanks::current().survive_deaths();
    }

    /// After a failure: joins the other ranks anew, so that nothing of what was under way is left;
    /// collective. Ranks that have died are cut out where the job survives deaths; returns which,
    /// as they were numbered at the start of the job. Throws CommError [RT-X14] when that cannot
    /// be done.
    std::vector<int> rejoin() {
        comm::LivingRanks& living = comm::LivingRanks::current();
        std::vector<int> lost;
        if (living.survive_deaths()) {
            lost = living.cut_out(communicator_->world().died());
        }
        const comm::RevokedOnError guard(living.comm());
        join();
        return lost;
    }

    /// Joins the other ranks; collective. Throws ConfigError [RT-C2] when num_workers does not
    /// allow the number of ranks, LaunchError [RT-L17] when too few files may be open.
    void start(const ScalingConfig& scaling) {
        if (!comm::mpi_is_initialized()) {
            require_descriptors();
        }
        comm::ensure_mpi();
        join();
        if (const NumWorkers& wanted = scaling.num_workers; !wanted.allows(size())) {
            const auto range = wanted.is_elastic()
                                   ? detail::concat("{", wanted.min(), ", ", wanted.max(), "}")
                                   : std::to_string(*wanted);
            throw ConfigError("RT-C2", detail::concat("num_workers is ", range, ", but ", size(),
                                                      " ranks were started; start `mpirun -n ",
                                                      *wanted, "`, or leave num_workers unset"));
        }
        set_threads(*communicator_, scaling);
        keep_freed_blocks();
    }

    /// Ends the training function's communication on all ranks: says how this rank ended, returns
    /// how each did.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine) {
        return communicator_->world().finish(mine, options_.failure_patience);
    }

    [[nodiscard]] int rank() const noexcept { return communicator_->rank(); }
    [[nodiscard]] int size() const noexcept { return communicator_->size(); }
    [[nodiscard]] int local_rank() const noexcept { return communicator_->local_rank(); }
    [[nodiscard]] int local_size() const noexcept { return communicator_->local_size(); }
    [[nodiscard]] int node_rank() const noexcept {
        return communicator_->world().node_of(communicator_->world().rank());
    }
    /// All ranks, with every collective there is; split() makes groups.
    [[nodiscard]] comm::Communicator& communicator() const noexcept { return *communicator_; }

    /// Only the ranks of a group, numbered as there: for models that some of the ranks train
    /// together (DataParallelOptions::group).
    [[nodiscard]] Mpi over(std::shared_ptr<comm::Communicator> group) const {
        Mpi some(options_);
        some.communicator_ = std::move(group);
        return some;
    }

    void all_reduce(at::Tensor& tensor, ReduceOp op) { communicator_->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) { communicator_->broadcast(tensor, root); }
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        return communicator_->all_gather(tensor);
    }
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
        return communicator_->reduce_scatter(tensor, op);
    }
    [[nodiscard]] comm::AllReduce all_reduce_async(at::Tensor& tensor, ReduceOp op) {
        return communicator_->all_reduce_async(tensor, op);
    }
    /// Memory that the ranks of a node share, in which all_reduce() needs no copies.
    [[nodiscard]] at::Tensor allocate_bucket(std::int64_t elements,
                                             const at::TensorOptions& options) {
        return communicator_->allocate_bucket(elements, options);
    }
    void barrier() { communicator_->barrier(); }

    /// Throws PeerError when another rank has failed or left; never blocks. See
    /// comm::Communicator::check_peers().
    void check_peers(const char* what) { communicator_->check_peers(what); }

private:
    /// MPI itself waits without a word when it gets none.
    static void require_descriptors() {
        const int here = launch::env_int("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1);
        launch::require_descriptors(launch::descriptors_for_rank(here, launch::open_descriptors()),
                                    detail::concat("a rank among ", here, " of a machine"));
    }

    void join() {
        communicator_ = std::make_shared<comm::Communicator>(comm::World::Options{
            .timeout = options_.timeout,
            .check_calls =
                options_.check_calls || launch::env_int("RTRAIN_CHECK_CALLS").value_or(0) != 0});
    }

    Options options_;
    std::shared_ptr<comm::Communicator> communicator_;
};

static_assert(Backend<Mpi> && AsyncBackend<Mpi>);

} // namespace rtrain::backend
