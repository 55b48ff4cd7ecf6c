// SPDX-License-Identifier: Apache-2.0
/// @file
/// The only header that includes <mpi.h>: without MPI's removed C++ bindings, which cost a second
/// per file and a library. Also MPI's lifetime and its errors.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/process/stdio/output_tee.hpp>
#include <rtrain/process/throw_for_good.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> // says whether this MPI has ULFM: see comm/world/ulfm.hpp
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <unistd.h>

namespace rtrain::comm {

/// True if the MPI that this program is compiled for has ULFM (comm/world/ulfm.hpp).
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
inline constexpr bool has_ulfm = true;
#else
inline constexpr bool has_ulfm = false;
#endif

/// True if an MPI call has failed because a process is dead. Only an MPI with ULFM reports it.
[[nodiscard]] inline bool tells_of_death([[maybe_unused]] int result) {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    int kind = MPI_SUCCESS;
    MPI_Error_class(result, &kind);
    return kind == MPIX_ERR_PROC_FAILED || kind == MPIX_ERR_PROC_FAILED_PENDING ||
           kind == MPIX_ERR_REVOKED;
#else
    return false;
#endif
}

/// Throws CommError [RT-X3] unless `result` is MPI_SUCCESS; PeerError [RT-X9] if it reports a
/// death.
inline void check_mpi(int result, const char* call) {
    if (result == MPI_SUCCESS) {
        return;
    }
    if (tells_of_death(result)) {
        throw_for_good(PeerError("RT-X9", detail::concat("a rank died, as reported by ", call)));
    }
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(result, text, &length);
    throw_for_good(CommError(
        "RT-X3", detail::concat(
                     call, " failed: ", std::string_view(text, static_cast<std::size_t>(length)))));
}

/// Set when a rank has died: MPI_Finalize may wait for it forever. An mpirun that lets the others
/// live accepts that they exit without it.
inline bool a_rank_has_died = false;

[[nodiscard]] inline bool mpi_is_initialized() {
    int initialized = 0;
    check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
    return initialized != 0;
}

/// "Open MPI v4.1.4"; "" if MPI is not in use.
[[nodiscard]] inline std::string library_version() {
    if (!mpi_is_initialized()) {
        return "";
    }
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
    std::replace(text.begin(), text.end(), '\t', ' '); // MPICH's
    const std::string_view all(text.data(), static_cast<std::size_t>(length));
    return std::string(all.substr(0, all.find_first_of(",\n"))); // omits who built it, and where
}

/// Throws CommError [RT-X15] if this process is alone, but was started as one of several: by the
/// mpirun of a different MPI than the program was compiled for.
inline void require_same_mpi() {
    int size = 0;
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    const int started = launch::ranks().value_or(1);
    if (size == 1 && started > 1) {
        throw CommError(
            "RT-X15",
            detail::concat(launch::launcher(), " has started this process as one of ", started,
                           ", but the program was compiled for ", library_version(),
                           ", in which it is a single process; start it with the mpirun of that "
                           "MPI, or compile it for the MPI of this launcher"));
    }
}

/// Throws CommError [RT-X46] after MPI_Finalize, when MPI itself would abort the program.
inline void require_not_finalized() {
    int finalized = 0;
    check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
    if (finalized != 0) {
        throw CommError("RT-X46", "MPI_Finalize was called before fit(), which needs MPI; call it "
                                  "after the last fit(), or leave it to rtrain, which calls it at "
                                  "exit");
    }
}

/// True while the training function has not returned.
[[nodiscard]] constexpr bool is_in_function(Phase phase) noexcept {
    return phase != Phase::starting && phase != Phase::done;
}

/// Makes MPI_Finalize end this process with a message while the training function runs: MPI would
/// abort later calls. MPI deletes the attributes of MPI_COMM_SELF first.
inline void watch_for_finalize() {
    static bool is_watched = false;
    if (std::exchange(is_watched, true)) {
        return;
    }
    const auto on_finalize = [](MPI_Comm, int, void*, void*) -> int {
        const Phase phase = ProcessContext::current().status.phase;
        if (is_in_function(phase)) {
            console::error("MPI_Finalize was called within the training function, which ends this "
                           "rank; call it after the last fit(), or leave it to rtrain [RT-X47]");
            std::fflush(nullptr);
            process::OutputTee::settle_current();
            ::_exit(EXIT_FAILURE);
        }
        return MPI_SUCCESS;
    };
    int key = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr),
              "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
}

/// Reports a call of exit() during training: by the training function, or by a library, because
/// another rank has failed.
inline void report_exit(bool is_by_function) {
    if (is_by_function) {
        console::error("exit() was called within the training function; throw an exception to end "
                       "all ranks, or return to end the run");
        return;
    }
    const PeerError error("RT-X118", "a thread other than the training function's has called "
                                     "exit(), as XGBoost's does when another worker fails; look "
                                     "for the error of another rank");
    console::error("%s", error.what());
    ProcessContext::current().attempt.report_last_words(error);
}

/// Initialises MPI unless the program has done so; then MPI is also finalised at exit, unless a
/// rank has died. Calls are made from one thread at a time (MPI_THREAD_SERIALIZED): autograd runs
/// CPU hooks in the thread that called backward(). Throws CommError [RT-X8, RT-X15, RT-X46].
inline void ensure_mpi() {
    if (mpi_is_initialized()) {
        require_not_finalized();
        watch_for_finalize();
        require_same_mpi();
        return;
    }
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
              "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
        throw CommError("RT-X8", "this MPI library cannot be called from several threads in turn "
                                 "(MPI_THREAD_SERIALIZED); use one that can");
    }
    static const process::Owner owner;
    static const std::thread::id trains = std::this_thread::get_id();
    std::atexit([] {
        if (!owner.is_this_process()) {
            return; // a child of the rank, which does not use MPI
        }
        // Finalising waits for the other ranks, and those wait for this one.
        const Phase phase = ProcessContext::current().status.phase;
        if (is_in_function(phase)) {
            report_exit(trains == std::this_thread::get_id());
            std::fflush(nullptr);
            process::OutputTee::settle_current();
            ::_exit(EXIT_FAILURE);
        }
        int finalized = 0;
        MPI_Finalized(&finalized);
        if (finalized == 0 && !a_rank_has_died) {
            MPI_Finalize();
        }
    });
    watch_for_finalize();
    require_same_mpi();
}

/// A separate communicator over the same ranks, so that messages never mix with the user's. Its
/// errors are returned, not fatal.
class OwnedComm {
public:
    explicit OwnedComm(MPI_Comm parent) {
        check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    }
    OwnedComm(OwnedComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
    OwnedComm(const OwnedComm&) = delete;
    OwnedComm& operator=(const OwnedComm&) = delete;

    /// Freeing is collective and waits for pending operations, so communicators are only freed
    /// when no rank has failed: see World::finish().
    void free() {
        if (comm_ != MPI_COMM_NULL) {
            MPI_Comm_free(&comm_);
        }
    }

    [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

} // namespace rtrain::comm
