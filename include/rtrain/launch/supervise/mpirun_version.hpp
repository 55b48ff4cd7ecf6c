// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects the mpirun on PATH: Open MPI's, or hydra of MPICH and Intel MPI. Their options differ.
#pragma once

#include <rtrain/process/os/child.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

namespace rtrain::launch {

struct MpirunVersion {
    std::optional<int> open_mpi{}; ///< such as 4; empty for another MPI
    bool is_hydra = false;

    /// Parses the output of `mpirun --version`.
    [[nodiscard]] static MpirunVersion of(const std::string& text) {
        MpirunVersion version;
        int number = 0;
        const auto name = text.find("(Open MPI) ");
        if (name != std::string::npos &&
            std::sscanf(text.c_str() + name, "(Open MPI) %d.", &number) == 1) {
            version.open_mpi = number;
        }
        version.is_hydra = text.find("HYDRA") != std::string::npos ||
                           text.find("Intel(R) MPI Library") != std::string::npos;
        return version;
    }

    [[nodiscard]] static MpirunVersion on_path() {
        const auto mpirun = find_program("mpirun");
        if (!mpirun) {
            return {};
        }
        std::string text;
        const std::string command = quoted(mpirun->string()) + " --version 2>/dev/null";
        if (std::FILE* const out = ::popen(command.c_str(), "re")) {
            std::array<char, 256> part{};
            while (const std::size_t got = std::fread(part.data(), 1, part.size(), out)) {
                text.append(part.data(), got);
            }
            ::pclose(out);
        }
        return of(text);
    }
};

} // namespace rtrain::launch
