// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the launcher (mpirun, srun) reveals about this process before MPI is initialized.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace rtrain::launch {

/// The value of an environment variable that is an integer.
[[nodiscard]] inline std::optional<int> env_int(const char* name) {
    const char* const text = std::getenv(name);
    if (text == nullptr) {
        return std::nullopt;
    }
    const std::string_view digits(text);
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
        return std::nullopt;
    }
    return value;
}

/// Set for the only rank of a driver that started it without mpirun.
inline constexpr const char* sole_rank_variable = "RTRAIN_SOLE_RANK";

/// True if this process is that rank.
[[nodiscard]] inline bool is_sole_rank() {
    return std::getenv(sole_rank_variable) != nullptr;
}

/// Number of ranks if this process belongs to a parallel job: of mpirun (Open MPI, MPICH), of srun
/// with an MPI plug-in, or of a driver. Empty if the program was started alone, even inside a batch
/// script.
[[nodiscard]] inline std::optional<int> ranks() {
    if (is_sole_rank()) {
        return 1;
    }
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
        if (const auto size = env_int(name)) {
            return size;
        }
    }
    if (std::getenv("PMIX_RANK") != nullptr) {
        return env_int("SLURM_STEP_NUM_TASKS").value_or(1);
    }
    return std::nullopt;
}

/// The rank of this process; empty if ranks() is.
[[nodiscard]] inline std::optional<int> rank() {
    if (is_sole_rank()) {
        return 0;
    }
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
        if (const auto number = env_int(name)) {
            return number;
        }
    }
    return std::nullopt;
}

/// The name of the launcher of this rank.
[[nodiscard]] inline std::string_view launcher() {
    if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
        return "Open MPI's mpirun";
    }
    if (std::getenv("PMI_SIZE") != nullptr) {
        return std::getenv("MPI_LOCALNRANKS") != nullptr ? "MPICH's or Intel MPI's mpirun (hydra)"
                                                         : "srun with PMI";
    }
    return "srun with PMIx";
}

} // namespace rtrain::launch
