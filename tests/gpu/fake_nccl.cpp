// SPDX-License-Identifier: Apache-2.0
#include "fake.hpp"

#include <ATen/Functions.h>

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr int most_ranks = 8;
constexpr std::size_t slot_bytes = std::size_t{1} << 20;

/// What the ranks of a communicator share.
struct Shared {
    std::atomic<int> joined;
    std::atomic<int> steps[most_ranks]; ///< barriers that a rank has come to
    alignas(64) char slots[most_ranks][slot_bytes];
};

std::atomic<int> abort_calls{0};
std::atomic<int> destroy_calls{0};
std::string last_host_id;

} // namespace

struct ncclComm {
    Shared* shared = nullptr;
    int rank = 0;
    int size = 1;
    int looks = 0;               ///< that the state stays "in progress"
    ncclComm_t* given = nullptr; ///< NCCL's thread writes it once more before it ends
    std::function<void()> postponed;
    std::shared_ptr<std::atomic<bool>> stopped = std::make_shared<std::atomic<bool>>(false);

    /// False when the communicator was aborted.
    static bool meet(Shared& shared, int rank, int size, const std::atomic<bool>& stopped) {
        const int step = ++shared.steps[rank];
        for (int peer = 0; peer < size; ++peer) {
            while (shared.steps[peer] < step) {
                if (stopped) {
                    return false;
                }
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        }
        return true;
    }
};

fake::Faults& fake::faults() {
    static Faults faults;
    return faults;
}
std::string fake::host_id() {
    return last_host_id;
}
int fake::aborted() {
    return abort_calls;
}
int fake::destroyed() {
    return destroy_calls;
}

namespace {

/// What a collective is to write is not a number until it has: who does not wait for it shows.
void poison(cudaStream_t stream, void* to, std::size_t bytes) {
    fake::writes(to, bytes);
    fake::enqueue(stream, [=] { std::memset(to, 0xff, bytes); });
}

/// `combine(slots, offset, bytes)` writes this rank's result of a piece.
template <class Combine>
ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const void* mine, std::size_t bytes,
                        Combine combine) {
    if (fake::faults().refuses != 0) {
        return static_cast<ncclResult_t>(std::exchange(fake::faults().refuses, 0));
    }
    auto work = [stopped = comm->stopped, shared = comm->shared, rank = comm->rank,
                 size = comm->size, mine, bytes, combine] {
        for (std::size_t offset = 0; offset < bytes; offset += slot_bytes) {
            const std::size_t piece = std::min(slot_bytes, bytes - offset);
            std::memcpy(shared->slots[rank], static_cast<const char*>(mine) + offset, piece);
            if (!ncclComm::meet(*shared, rank, size, *stopped)) {
                return;
            }
            combine(*shared, size, offset, piece);
            if (!ncclComm::meet(*shared, rank, size, *stopped)) {
                return;
            }
        }
    };
    comm->looks = fake::faults().connects_slowly;
    if (comm->looks > 0) {
        comm->postponed = [stream, work] { fake::enqueue(stream, work); };
        return ncclInProgress;
    }
    fake::enqueue(stream, work);
    return ncclSuccess;
}

at::ScalarType type_of(ncclDataType_t type) {
    switch (type) {
    case ncclFloat32:
        return at::kFloat;
    case ncclFloat64:
        return at::kDouble;
    case ncclFloat16:
        return at::kHalf;
    case ncclBfloat16:
        return at::kBFloat16;
    case ncclInt32:
        return at::kInt;
    case ncclInt64:
        return at::kLong;
    case ncclInt8:
        return at::kChar;
    default:
        return at::kByte;
    }
}

/// A piece that lies in the slots of all.
at::Tensor reduced(Shared& shared, int size, std::size_t bytes, at::ScalarType type,
                   ncclRedOp_t op) {
    const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(type));
    at::Tensor all = at::from_blob(shared.slots[0], {elements}, type).clone();
    for (int rank = 1; rank < size; ++rank) {
        const at::Tensor next = at::from_blob(shared.slots[rank], {elements}, type);
        all = op == ncclMin   ? at::minimum(all, next)
              : op == ncclMax ? at::maximum(all, next)
                              : at::add(all, next);
    }
    return op == ncclAvg ? all.div_(size) : all;
}

} // namespace

const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSystemError ? "unhandled system error" : "fake error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
    return "the fake says so";
}

ncclResult_t ncclGetVersion(int* version) {
    *version = fake::faults().version != 0 ? fake::faults().version : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::memset(id, 0, sizeof *id);
    static int number = 0;
    std::snprintf(id->internal, sizeof id->internal, "/rtrain-fake-nccl-%d-%d",
                  static_cast<int>(::getpid()), number++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    *comm = nullptr;
    const char* const host = std::getenv("NCCL_HOSTID");
    last_host_id = host == nullptr ? "" : host;
    if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > most_ranks) {
        return ncclInvalidArgument;
    }
    const int file = ::shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) {
        return ncclSystemError;
    }
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    *comm = new ncclComm;
    (*comm)->shared = static_cast<Shared*>(memory);
    (*comm)->rank = rank;
    (*comm)->size = ranks;
    (*comm)->given = comm;
    if (++(*comm)->shared->joined == ranks) {
        ::shm_unlink(id.internal);
    }
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    *state = ncclSuccess;
    if (fake::faults().breaks != 0) {
        *state = static_cast<ncclResult_t>(fake::faults().breaks);
    } else if (comm->shared->joined < comm->size || fake::faults().never_connects) {
        *state = ncclInProgress;
    } else if (comm->looks > 0) {
        --comm->looks;
        *state = ncclInProgress;
    } else if (comm->postponed) {
        std::exchange(comm->postponed, nullptr)();
    }
    comm->given = *state == ncclInProgress ? comm->given : nullptr;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) {
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    ++destroy_calls;
    ::munmap(comm->shared, sizeof(Shared));
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { // its memory stays: streams may still look at it
    ++abort_calls;
    *comm->stopped = true;
    if (comm->given != nullptr) {
        *std::exchange(comm->given, nullptr) = comm;
    }
    if (const auto may_return = fake::faults().abort_may_return) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!*may_return && std::chrono::steady_clock::now() < until) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    const at::ScalarType scalar = type_of(type);
    fake::writes(to, count * c10::elementSize(scalar));
    return collective(comm, stream, from, count * c10::elementSize(scalar),
                      [=](Shared& shared, int size, std::size_t offset, std::size_t bytes) {
                          const at::Tensor all = reduced(shared, size, bytes, scalar, op);
                          std::memcpy(static_cast<char*>(to) + offset, all.const_data_ptr(), bytes);
                      });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    const at::ScalarType scalar = type_of(type);
    const std::size_t row = count * c10::elementSize(scalar);
    poison(stream, to, row);
    return collective(
        comm, stream, from, row * static_cast<std::size_t>(comm->size),
        [=, rank = static_cast<std::size_t>(comm->rank)](Shared& shared, int size,
                                                         std::size_t offset, std::size_t bytes) {
            const at::Tensor all = reduced(shared, size, bytes, scalar, op);
            const std::size_t begin = std::max(rank * row, offset);
            const std::size_t end = std::min((rank + 1) * row, offset + bytes);
            if (begin < end) { // what of this rank's row is in the piece
                std::memcpy(static_cast<char*>(to) + (begin - rank * row),
                            static_cast<const char*>(all.const_data_ptr()) + (begin - offset),
                            end - begin);
            }
        });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    fake::writes(to, count * c10::elementSize(type_of(type)));
    return collective(comm, stream, from, count * c10::elementSize(type_of(type)),
                      [=](Shared& shared, int /*size*/, std::size_t offset, std::size_t bytes) {
                          std::memcpy(static_cast<char*>(to) + offset, shared.slots[root], bytes);
                      });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    const std::size_t all = count * c10::elementSize(type_of(type));
    for (int rank = 0; rank < comm->size; ++rank) {
        if (char* const row = static_cast<char*>(to) + static_cast<std::size_t>(rank) * all;
            row != from) {
            poison(stream, row, all);
        }
    }
    return collective(comm, stream, from, all,
                      [=](Shared& shared, int size, std::size_t offset, std::size_t bytes) {
                          for (int rank = 0; rank < size; ++rank) {
                              std::memcpy(static_cast<char*>(to) +
                                              static_cast<std::size_t>(rank) * all + offset,
                                          shared.slots[rank], bytes);
                          }
                      });
}
