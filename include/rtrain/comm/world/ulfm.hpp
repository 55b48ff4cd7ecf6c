// SPDX-License-Identifier: Apache-2.0
/// @file
/// User-level failure mitigation (ULFM): an MPI that survives the death of a process, and lets the
/// others continue without it. Open MPI 5 has it, for jobs that `mpirun --with-ft ulfm` has
/// started. Any other MPI has one permanent world, and nothing here costs anything.
#pragma once

#include <rtrain/comm/world/mpi.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

namespace rtrain::comm {

/// The living processes of this job: MPI_COMM_WORLD, until the dead are excluded from it.
class SurvivingRanks {
public:
    /// Deaths are noticed here before MPI notices them, if it does: it misses a process that called
    /// _exit().
    static constexpr std::chrono::seconds notice_limit{3};

    /// Returns the instance of this process.
    [[nodiscard]] static SurvivingRanks& current() {
        static SurvivingRanks ranks;
        return ranks;
    }
    SurvivingRanks(const SurvivingRanks&) = delete;
    SurvivingRanks& operator=(const SurvivingRanks&) = delete;

    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }

    /// True if this job survives the death of a rank.
    [[nodiscard]] bool survive_deaths() const noexcept { return survive_deaths_; }

    /// Returns the ranks in `comm` that MPI newly knows to be dead; it does not report them again.
    [[nodiscard]] std::vector<int> take_dead([[maybe_unused]] MPI_Comm comm) const {
        std::vector<int> dead;
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        if (survive_deaths_) {
            MPI_Group group = MPI_GROUP_NULL;
            check_mpi(MPIX_Comm_get_failed(comm, &group), "MPIX_Comm_get_failed");
            dead = ranks_of(group, comm);
            MPI_Group_free(&group);
            if (!dead.empty()) {
                MPIX_Comm_failure_ack(comm);
            }
        }
#endif
        return dead;
    }

    /// Excludes the ranks that have died from comm(); collective among the others. `dead`: those
    /// that this rank knows of. Returns the ranks in MPI_COMM_WORLD of all that were excluded now.
    /// Throws CommError [RT-X14] if MPI has not noticed a death within `notice_limit`.
    std::vector<int> cut_out([[maybe_unused]] const std::vector<int>& dead) {
        std::vector<int> lost;
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
        wait_for_notice(dead);
        MPI_Comm smaller = MPI_COMM_NULL;
        check_mpi(MPIX_Comm_shrink(comm_, &smaller), "MPIX_Comm_shrink");
        MPI_Comm_set_errhandler(smaller, MPI_ERRORS_RETURN);
        MPI_Group before = MPI_GROUP_NULL;
        MPI_Group now = MPI_GROUP_NULL;
        MPI_Group gone = MPI_GROUP_NULL;
        MPI_Comm_group(comm_, &before);
        MPI_Comm_group(smaller, &now);
        MPI_Group_difference(before, now, &gone);
        lost = ranks_of(gone, MPI_COMM_WORLD);
        for (MPI_Group* group : {&before, &now, &gone}) {
            MPI_Group_free(group);
        }
        comm_ = smaller; // the previous one is not freed: its messages may be stuck
#endif
        return lost;
    }

private:
    SurvivingRanks() = default;

    [[nodiscard]] static bool mpi_survives_deaths() {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        int* enabled = nullptr;
        int known = 0;
        check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &enabled, &known),
                  "MPI_Comm_get_attr");
        return known != 0 && *enabled != 0;
#else
        return false;
#endif
    }

#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    /// The members of a group, as ranks in `comm`.
    [[nodiscard]] static std::vector<int> ranks_of(MPI_Group group, MPI_Comm comm) {
        int size = 0;
        MPI_Group_size(group, &size);
        std::vector<int> members(static_cast<std::size_t>(size));
        std::vector<int> ranks(members.size());
        std::iota(members.begin(), members.end(), 0);
        MPI_Group all = MPI_GROUP_NULL;
        MPI_Comm_group(comm, &all);
        MPI_Group_translate_ranks(group, size, members.data(), all, ranks.data());
        MPI_Group_free(&all);
        return ranks;
    }

    /// Excluding a rank that MPI considers alive would wait for it forever.
    void wait_for_notice(const std::vector<int>& dead) const {
        using Clock = std::chrono::steady_clock;
        const auto deadline = Clock::now() + notice_limit;
        const auto is_noticed = [known = std::vector<int>(), this](int rank) mutable {
            if (std::find(known.begin(), known.end(), rank) == known.end()) {
                int pending = 0; // lets MPI make progress
                MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &pending, MPI_STATUS_IGNORE);
                MPI_Group group = MPI_GROUP_NULL;
                check_mpi(MPIX_Comm_get_failed(comm_, &group), "MPIX_Comm_get_failed");
                known = ranks_of(group, comm_);
                MPI_Group_free(&group);
            }
            return std::find(known.begin(), known.end(), rank) != known.end();
        };
        while (!std::all_of(dead.begin(), dead.end(), is_noticed)) {
            if (Clock::now() > deadline) {
                throw CommError(
                    "RT-X14", detail::concat("a rank has died, and MPI has not noticed it within ",
                                             notice_limit.count(), " s"));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
#endif

    MPI_Comm comm_ = MPI_COMM_WORLD;
    bool survive_deaths_ = mpi_survives_deaths();
};

/// While it lives, an exception makes blocking calls in `comm` fail on all ranks. Otherwise ranks
/// that wait for this one would wait forever.
class RevokedOnError {
public:
    explicit RevokedOnError(MPI_Comm comm) : comm_(comm) {}
    RevokedOnError(const RevokedOnError&) = delete;
    RevokedOnError& operator=(const RevokedOnError&) = delete;
    ~RevokedOnError() {
        if (std::uncaught_exceptions() > exceptions_ &&
            SurvivingRanks::current().survive_deaths()) {
            revoke();
        }
    }

private:
    void revoke() const {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        MPIX_Comm_revoke(comm_);
#endif
    }

    [[maybe_unused]] MPI_Comm comm_;
    int exceptions_ = std::uncaught_exceptions();
};

} // namespace rtrain::comm
