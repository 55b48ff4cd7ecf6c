// SPDX-License-Identifier: Apache-2.0
/// @file
/// An ncclComm_t with an owner. It is non-blocking: no call waits for other ranks, so a rank can
/// always check for failures, give up, and report why.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/nccl/types.hpp>
#include <rtrain/comm/world/backoff.hpp>

#include <chrono>
#include <mutex>
#include <string>
#include <utility>

namespace rtrain::comm {

/// Creates the id by which the ranks of a communicator find each other; one rank creates it for
/// all.
[[nodiscard]] inline ncclUniqueId new_nccl_id() {
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return id;
}

/// Throws ConfigError [RT-N10] if the loaded NCCL is not the one compiled with.
inline void require_same_nccl() {
    int loaded = 0;
    check_nccl(ncclGetVersion(&loaded), "ncclGetVersion");
    if (loaded / 10000 != NCCL_MAJOR || loaded < NCCL_VERSION(2, 18, 0)) {
        const auto text = [](int version) {
            return detail::concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
        };
        throw ConfigError(
            "RT-N10", detail::concat("the program was compiled with NCCL ", text(NCCL_VERSION_CODE),
                                     " and has loaded ", text(loaded),
                                     "; expected the same major version, and 2.18 or newer: link "
                                     "the NCCL that libtorch loads, and check LD_LIBRARY_PATH"));
    }
}

/// Members may be called from any thread; a watchdog polls state() and calls abort() while the
/// training thread is blocked elsewhere.
class NcclCommunicator {
public:
    /// Begins to connect to the other ranks, on the current device: state() is ncclInProgress until
    /// that is done. Throws CommError [RT-N5].
    NcclCommunicator(const ncclUniqueId& id, int rank, int size) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        const ncclResult_t result = ncclCommInitRankConfig(&given_, size, id, rank, &config);
        comm_ = given_;
        if (result != ncclSuccess && result != ncclInProgress) {
            const std::string text = describe(result);
            abort();
            throw CommError("RT-N5", "ncclCommInitRankConfig failed: " + text);
        }
    }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;
    ~NcclCommunicator() { abort(); }

    /// ncclSuccess, ncclInProgress while the last call is in progress, or the error since then.
    [[nodiscard]] ncclResult_t state() {
        const std::scoped_lock lock(mutex_);
        if (comm_ == nullptr) {
            return ncclInvalidUsage;
        }
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
        return asked == ncclSuccess ? state : asked;
    }

    /// Runs `call(ncclComm_t)`, an NCCL function that enqueues; after ncclInProgress, state() shows
    /// when the work is on its stream.
    template <class Call>
    [[nodiscard]] ncclResult_t enqueue(Call&& call) {
        const std::scoped_lock lock(mutex_);
        return comm_ == nullptr ? ncclInvalidUsage : std::forward<Call>(call)(comm_);
    }

    /// NCCL's description of an error.
    [[nodiscard]] std::string describe(ncclResult_t result) {
        const std::scoped_lock lock(mutex_);
        std::string text = ncclGetErrorString(result);
        const char* const last = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
        if (last != nullptr && *last != '\0') {
            text += detail::concat(" (", last, ")");
        }
        return text;
    }

    /// Ends the work in flight, on this rank alone; kernels that wait for peers leave their
    /// streams.
    void abort() noexcept {
        ncclComm_t comm = nullptr;
        {
            const std::scoped_lock lock(mutex_);
            comm = std::exchange(comm_, nullptr);
        }
        if (comm != nullptr) {         // without the lock: it may wait for NCCL's threads
            (void)ncclCommAbort(comm); // nothing can be done about a failure here
        }
    }

    /// Ends the communicator when all ranks do so and nothing is in flight; collective. Gives up
    /// silently after `patience`: the work is complete already.
    void close(std::chrono::milliseconds patience) noexcept {
        const auto until = Backoff::Clock::now() + patience;
        const ncclResult_t begun = enqueue([](ncclComm_t comm) { return ncclCommFinalize(comm); });
        Backoff backoff;
        bool finalized = begun == ncclSuccess || begun == ncclInProgress;
        while (finalized && state() == ncclInProgress) {
            finalized = Backoff::Clock::now() < until;
            backoff.pause();
        }
        if (finalized && state() == ncclSuccess) {
            const std::scoped_lock lock(mutex_);
            (void)ncclCommDestroy(std::exchange(comm_, nullptr));
        }
        abort();
    }

private:
    std::mutex mutex_;
    ncclComm_t comm_ = nullptr;  ///< null after abort()
    ncclComm_t given_ = nullptr; ///< written by a thread of NCCL until connected or aborted
};

} // namespace rtrain::comm
