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
    /// What may be set of a backend::Mpi.
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
    [[nodiscard]] static std::optional<int> launched_ranks();

    /// Whether the MPI that this program is compiled for can go on after a rank has died.
    [[nodiscard]] static bool can_survive_deaths();
    /// Whether this job can, too. Once start() was called.
    [[nodiscard]] bool survives_deaths() const;

    /// After a failure: joins the other ranks anew, so that nothing of what was under way is left;
    /// collective. Ranks that have died are cut out where the job survives deaths; returns which,
    /// as they were numbered at the start of the job. Throws CommError [RT-X14] when that cannot
    /// be done.
    std::vector<int> rejoin();

    /// Joins the other ranks; collective. Throws ConfigError [RT-C2] when num_workers does not
    /// allow the number of ranks, LaunchError [RT-L17] when too few files may be open.
    void start(const ScalingConfig& scaling);

    /// Runs follow each other in these ranks: what they have joined by is kept from a finish() to
    /// the next start(), where all have ended well. On all ranks alike.
    void stay_joined() noexcept { stays_joined_ = true; }

    /// Ends the training function's communication on all ranks: says how this rank ended, returns
    /// how each did.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine);

    [[nodiscard]] int rank() const noexcept;
    [[nodiscard]] int size() const noexcept;
    [[nodiscard]] int local_rank() const noexcept;
    [[nodiscard]] int local_size() const noexcept;
    [[nodiscard]] int node_rank() const noexcept;
    /// All ranks, with every collective there is; split() makes groups.
    [[nodiscard]] comm::Communicator& communicator() const noexcept { return *communicator_; }

    /// Only the ranks of a group, numbered as there: for models that some of the ranks train
    /// together (DataParallelOptions::group).
    [[nodiscard]] Mpi over(std::shared_ptr<comm::Communicator> group) const;

    void all_reduce(at::Tensor& tensor, ReduceOp op);
    void broadcast(at::Tensor& tensor, int root);
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor);
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op);
    [[nodiscard]] comm::AllReduce all_reduce_async(at::Tensor& tensor, ReduceOp op);
    /// Memory that the ranks of a node share, in which all_reduce() needs no copies.
    [[nodiscard]] at::Tensor allocate_bucket(std::int64_t elements,
                                             const at::TensorOptions& options);
    void barrier();

    /// Throws PeerError when another rank has failed or left; never blocks. See
    /// comm::Communicator::check_peers().
    void check_peers(const char* what);

private:
    /// MPI itself waits without a word when it gets none.
    static void require_descriptors();

    void join();

    /// As join(), in what the run before has left.
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
