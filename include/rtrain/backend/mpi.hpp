// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend over MPI ranks on CPUs. A program started alone launches its own mpirun (launch/).
#pragma once

#include <rtrain/backend/allocator.hpp>
#include <rtrain/backend/outcome.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/threads.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/config.hpp>
#include <rtrain/launch/environment.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
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
    };

    Mpi() = default;
    explicit Mpi(Options options) : options_(options) {}

    /// Ranks that a launcher has started; empty when the program was started alone.
    [[nodiscard]] static std::optional<int> launched_ranks() { return launch::ranks(); }

    /// Joins the other ranks; collective. Throws ConfigError [RT-C2] when num_workers is not the
    /// number of ranks.
    void start(const ScalingConfig& scaling) {
        comm::ensure_mpi();
        communicator_ = std::make_shared<comm::Communicator>(options_.timeout);
        if (scaling.num_workers && *scaling.num_workers != size()) {
            throw ConfigError(
                "RT-C2", detail::concat("num_workers is ", *scaling.num_workers, ", but ", size(),
                                        " ranks were started; start `mpirun -n ",
                                        *scaling.num_workers, "`, or leave num_workers unset"));
        }
        find_neighbours(scaling);
        keep_freed_blocks();
    }

    /// Ends the training function's communication on all ranks: says how this rank ended, returns
    /// how each did.
    [[nodiscard]] std::vector<Outcome> finish(const Outcome& mine) {
        return communicator_->finish(mine, options_.failure_patience);
    }

    [[nodiscard]] int rank() const noexcept { return communicator_->rank(); }
    [[nodiscard]] int size() const noexcept { return communicator_->size(); }
    [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
    [[nodiscard]] int local_size() const noexcept { return local_size_; }
    [[nodiscard]] int node_rank() const noexcept { return node_rank_; }

    void all_reduce(at::Tensor& tensor, ReduceOp op) { communicator_->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) { communicator_->broadcast(tensor, root); }
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        return communicator_->all_gather(tensor);
    }
    [[nodiscard]] comm::AllReduce all_reduce_async(at::Tensor& tensor, ReduceOp op) {
        return comm::AllReduce(*communicator_, tensor, op);
    }

    /// Throws PeerError when another rank has failed or left; never blocks. See
    /// comm::Communicator::check_peers().
    void check_peers(const char* what) { communicator_->check_peers(what); }

private:
    /// Ranks that share memory are one node; nodes are numbered by their lowest rank.
    void find_neighbours(const ScalingConfig& scaling) {
        MPI_Comm node = MPI_COMM_NULL;
        comm::check_mpi(
            MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
        MPI_Comm_rank(node, &local_rank_);
        MPI_Comm_size(node, &local_size_);
        int leader = rank();
        comm::check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
        std::vector<int> leaders(static_cast<std::size_t>(size()));
        comm::check_mpi(
            MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "MPI_Allgather");
        std::sort(leaders.begin(), leaders.end());
        leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
        node_rank_ = static_cast<int>(std::lower_bound(leaders.begin(), leaders.end(), leader) -
                                      leaders.begin());
        set_threads(node, scaling);
        MPI_Comm_free(&node);
    }

    Options options_;
    std::shared_ptr<comm::Communicator> communicator_;
    int local_rank_ = 0;
    int local_size_ = 1;
    int node_rank_ = 0;
};

static_assert(Backend<Mpi> && AsyncBackend<Mpi>);

} // namespace rtrain::backend
