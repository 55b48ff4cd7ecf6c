// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door mpi.hpp.
#pragma once

#include <rtrain/backend/allocator.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/threads.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/comm/world/ulfm.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/process/os/descriptor_limit.hpp>
#include <rtrain/process/os/environment.hpp>

#include <string>
#include <utility>

namespace rtrain::backend {

RTRAIN_DOOR std::optional<int> Mpi::launched_ranks() {
    return launch::ranks();
}

RTRAIN_DOOR bool Mpi::can_survive_deaths() {
    return comm::has_ulfm;
}

RTRAIN_DOOR bool Mpi::survives_deaths() const {
    return comm::SurvivingRanks::current().survive_deaths();
}

RTRAIN_DOOR std::vector<int> Mpi::rejoin() {
    comm::SurvivingRanks& living = comm::SurvivingRanks::current();
    std::vector<int> lost;
    if (living.survive_deaths()) {
        lost = living.cut_out(communicator_->world().died());
    }
    const comm::RevokedOnError guard(living.comm());
    join();
    return lost;
}

RTRAIN_DOOR void Mpi::start(const ScalingConfig& scaling) {
    if (!comm::mpi_is_initialized()) {
        require_descriptors();
    }
    comm::ensure_mpi();
    if (communicator_ != nullptr && communicator_->world().is_kept()) {
        go_on();
    } else {
        join();
    }
    if (const NumWorkers& wanted = scaling.num_workers; !wanted.allows(size())) {
        const auto range = wanted.is_elastic()
                               ? detail::concat("{", wanted.min(), ", ", wanted.max(), "}")
                               : std::to_string(*wanted);
        throw ConfigError("RT-C2", detail::concat("num_workers is ", range, ", but ", size(),
                                                  " ranks were started; start `mpirun -n ", *wanted,
                                                  "`, or leave num_workers unset"));
    }
    set_threads(*communicator_, scaling);
    keep_freed_blocks();
}

RTRAIN_DOOR std::vector<Outcome> Mpi::finish(const Outcome& mine) {
    return communicator_->world().finish(mine, options_.failure_patience, stays_joined_);
}

RTRAIN_DOOR int Mpi::rank() const noexcept {
    return communicator_->rank();
}

RTRAIN_DOOR int Mpi::size() const noexcept {
    return communicator_->size();
}

RTRAIN_DOOR int Mpi::local_rank() const noexcept {
    return communicator_->local_rank();
}

RTRAIN_DOOR int Mpi::local_size() const noexcept {
    return communicator_->local_size();
}

RTRAIN_DOOR int Mpi::node_rank() const noexcept {
    return communicator_->world().node_of(communicator_->world().rank());
}

RTRAIN_DOOR Mpi Mpi::over(std::shared_ptr<comm::Communicator> group) const {
    Mpi some(options_);
    some.communicator_ = std::move(group);
    return some;
}

RTRAIN_DOOR void Mpi::all_reduce(at::Tensor& tensor, ReduceOp op) {
    communicator_->all_reduce(tensor, op);
}

RTRAIN_DOOR void Mpi::broadcast(at::Tensor& tensor, int root) {
    communicator_->broadcast(tensor, root);
}

RTRAIN_DOOR at::Tensor Mpi::all_gather(const at::Tensor& tensor) {
    return communicator_->all_gather(tensor);
}

RTRAIN_DOOR std::vector<at::Tensor> Mpi::all_gather_parts(const at::Tensor& part) {
    return communicator_->parts().all_gather(part);
}

RTRAIN_DOOR at::Tensor Mpi::reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
    return communicator_->reduce_scatter(tensor, op);
}

RTRAIN_DOOR comm::AllReduce Mpi::all_reduce_async(at::Tensor& tensor, ReduceOp op) {
    return communicator_->all_reduce_async(tensor, op);
}

RTRAIN_DOOR at::Tensor Mpi::allocate_bucket(std::int64_t elements,
                                            const at::TensorOptions& options) {
    return communicator_->allocate_bucket(elements, options);
}

RTRAIN_DOOR void Mpi::barrier() {
    communicator_->barrier();
}

RTRAIN_DOOR void Mpi::check_peers(const char* what) {
    communicator_->check_peers(what);
}

RTRAIN_DOOR void Mpi::require_descriptors() {
    const int here = launch::env_int("OMPI_COMM_WORLD_LOCAL_SIZE")
                         .value_or(launch::env_int("MPI_LOCALNRANKS").value_or(1)); // MPICH's
    launch::require_descriptors(launch::descriptors_for_rank(here, launch::open_descriptors()),
                                detail::concat("a rank among ", here, " of a machine"));
}

RTRAIN_DOOR void Mpi::join() {
    communicator_ = std::make_shared<comm::Communicator>(comm::World::Options{
        .timeout = options_.timeout,
        .check_calls =
            options_.check_calls || launch::env_int("RTRAIN_CHECK_CALLS").value_or(0) != 0});
}

RTRAIN_DOOR void Mpi::go_on() {
    if (communicator_->is_kept()) {
        communicator_ = std::make_shared<comm::Communicator>(std::move(*communicator_));
    } else {
        communicator_->world().free();
        join();
    }
}

static_assert(AsyncBackend<Mpi>);

} // namespace rtrain::backend
