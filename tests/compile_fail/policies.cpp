// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect BACKEND_NO_RANK: Backend not met: missing member `int rank() const` [RT-B2]
// expect BACKEND_NO_SIZE: Backend not met: missing member `int size() const` [RT-B3]
// expect BACKEND_NO_ALL_REDUCE: Backend not met: missing member `void all_reduce(at::Tensor&, ReduceOp)` [RT-B4]
// expect BACKEND_NO_BROADCAST: Backend not met: missing member `void broadcast(at::Tensor&, int root)` [RT-B5]
// expect BACKEND_IMMOVABLE: Backend not met: the type must be movable, the trainer owns it [RT-B1]
// expect DATA_IMMOVABLE: DataPolicy not met: the type must be movable [RT-P1]
// expect DATA_NO_ORDER: DataPolicy not met: missing member `at::Tensor order(const EpochRequest&) const` [RT-P2]
// expect DATA_NO_SHARING: DataPolicy not met: missing member `std::int64_t ranks_sharing(int size) const` [RT-P3]
// expect CHECKPOINT_IMMOVABLE: CheckpointPolicy not met: the type must be movable [RT-Q1]
// expect CHECKPOINT_NO_WRITE: CheckpointPolicy not met: missing member `void write(const Snapshot&, const Part&)` [RT-Q2]
// expect CHECKPOINT_NO_READ: CheckpointPolicy not met: missing member `Snapshot read(const Part&)` [RT-Q3]
// clang-format on
#include <rtrain/fwd.hpp>

struct MyBackend {
#ifndef BACKEND_NO_RANK
    int rank() const {
        return 0;
    }
#endif
#ifndef BACKEND_NO_SIZE
    int size() const {
        return 1;
    }
#endif
#ifndef BACKEND_NO_ALL_REDUCE
    void all_reduce(at::Tensor&, rtrain::ReduceOp) {}
#endif
#ifndef BACKEND_NO_BROADCAST
    void broadcast(at::Tensor&, int) {}
#endif
#ifdef BACKEND_IMMOVABLE
    MyBackend(MyBackend&&) = delete;
#endif
};

struct MyData {
#ifndef DATA_NO_ORDER
    at::Tensor order(const rtrain::data::EpochRequest&) const;
#endif
#ifndef DATA_NO_SHARING
    std::int64_t ranks_sharing(int) const {
        return 1;
    }
#endif
#ifdef DATA_IMMOVABLE
    MyData(MyData&&) = delete;
#endif
};

struct MyCheckpoints {
#ifndef CHECKPOINT_NO_WRITE
    void write(const rtrain::checkpoint::Snapshot&, const rtrain::checkpoint::Part&) {}
#endif
#ifndef CHECKPOINT_NO_READ
    rtrain::checkpoint::Snapshot read(const rtrain::checkpoint::Part&);
#endif
#ifdef CHECKPOINT_IMMOVABLE
    MyCheckpoints(MyCheckpoints&&) = delete;
#endif
};

static_assert(sizeof(rtrain::Trainer<MyBackend, MyData, MyCheckpoints>) > 0);
