// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend over MPI ranks on CPUs. A program started alone launches its own mpirun (launch/).
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/config/config.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rtrain {

namespace comm {
class Communicator;
class AllReduce;
} // namespace comm

namespace backend {

/// One rank of MPI_COMM_WORLD.
class Mpi {
public:
    /// Options of backend::Mpi.
    struct Options {
        /// Longest wait in one collective; then throws CommError [RT-X2].
        std::chrono::seconds timeout{1800};
        /// After a rank has failed: time for the others to notice before the job is terminated.
        std::chrono::seconds failure_patience{30};
        /// Compares the calls of all ranks before each collective: a different order is then an
        /// immediate error (RT-X10), also between nodes. Costs a message to each rank. Also set by
        /// RTRAIN_CHECK_CALLS=1 in the environment.
        bool check_calls = false;
    };

    Mpi() = default;
    explicit Mpi(Options options) : options_(options) {}

    /// Number of ranks that a launcher has started; empty if the program was started alone.
    [[nodiscard]] static std::optional<int> launched_ranks();

    /// True if the MPI that this program is compiled for can continue after a rank has died.
    [[nodiscard]] static bool can_survive_deaths();
    /// True if this job can, too. Valid after start().
    [[nodiscard]] bool survives_deaths() const;

    /// After a failure: reconnects to the other ranks and discards all communication in flight;
    /// collective. Ranks that have died are excluded if the job survives deaths; returns them,
    /// numbered as at the start of the job. Throws CommError [RT-X14] if that is impossible.
    std::vector<int> rejoin();

    /// Joins the other ranks; collective. Throws ConfigError [RT-C2] if num_workers does not allow
    /// the number of ranks, LaunchError [RT-L17] if the limit of open files is too low.
    void start(const ScalingConfig& scaling);

    /// Consecutive runs use these ranks: connections are kept from a finish() to the next start()
    /// if all ranks have succeeded. All ranks must make this call.
    void stay_joined() noexcept { stays_joined_ = true; }

    /// Ends the training function's communication on all ranks: reports this rank's outcome,
    /// returns that of each rank.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine);

    [[nodiscard]] int rank() const noexcept;
    [[nodiscard]] int size() const noexcept;
    [[nodiscard]] int local_rank() const noexcept;
    [[nodiscard]] int local_size() const noexcept;
    [[nodiscard]] int node_rank() const noexcept;
    /// All ranks, with all collectives; split() makes groups.
    [[nodiscard]] comm::Communicator& communicator() const noexcept { return *communicator_; }

    /// Returns a backend of only the ranks of a group, with the group's numbering: for models that
    /// some of the ranks train together (DataParallelOptions::group).
    [[nodiscard]] Mpi over(std::shared_ptr<comm::Communicator> group) const;

    void all_reduce(at::Tensor& tensor, ReduceOp op);
    void broadcast(at::Tensor& tensor, int root);
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor);
    [[nodiscard]] std::vector<at::Tensor> all_gather_parts(const at::Tensor& part);
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op);
    [[nodiscard]] comm::AllReduce all_reduce_async(at::Tensor& tensor, ReduceOp op);
    /// Returns memory that the ranks of a node share, in which all_reduce() needs no copies.
    [[nodiscard]] at::Tensor allocate_bucket(std::int64_t elements,
                                             const at::TensorOptions& options);
    void barrier();

    /// Throws PeerError when another rank has failed or left; never blocks. See
    /// comm::Communicator::check_peers().
    void check_peers(const char* what);

private:
    /// MPI itself silently hangs without free descriptors.
    static void require_descriptors();

    void join();

    /// Like join(), but reuses the connections of the previous run.
    void go_on();

    Options options_;
    bool stays_joined_ = false;
    std::shared_ptr<comm::Communicator> communicator_;
};

static_assert(Backend<Mpi>);

} // namespace backend

#ifdef RTRAIN_COMPILED
/// @cond
extern template class detail::TheBackend<backend::Mpi>;
extern template std::shared_ptr<detail::AnyBackend>
    detail::any_backend(std::shared_ptr<backend::Mpi>);
/// @endcond
#endif

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/backend/mpi_definitions.hpp>
#endif
