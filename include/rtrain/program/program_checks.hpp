// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of a program's options before any rank starts, so that mistakes are one line.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/program_path.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace rtrain::program {

/// True if a file is an executable that contains rtrain's trainer: it has the name of a variable
/// that only ranks of its driver use.
[[nodiscard]] inline bool is_rtrain_program(const std::string& path) {
    const process::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat state {};
    if (file.get() < 0 || ::fstat(file.get(), &state) != 0 || state.st_size <= 0) {
        return false;
    }
    const auto size = static_cast<std::size_t>(state.st_size);
    void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (bytes == MAP_FAILED) { // NOLINT: a cast in the macro
        return false;
    }
    constexpr std::string_view elf = "\x7f"
                                     "ELF";
    constexpr std::string_view marker("RTRAIN_SESSION_FIT", 19); // with its null
    const bool found = size > elf.size() && std::memcmp(bytes, elf.data(), elf.size()) == 0 &&
                       ::memmem(bytes, size, marker.data(), marker.size()) != nullptr;
    ::munmap(bytes, size);
    return found;
}

/// Throws ConfigError [RT-E11] if a launcher has started this process as a rank.
inline void require_no_rank() {
    if (std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr) {
        throw ConfigError("RT-E11", detail::concat("RANK is set to ", std::getenv("RANK"),
                                                   ", as by torchrun; start `rtrain run` alone, it "
                                                   "starts the ranks, or unset RANK"));
    }
    if (launch::ranks()) {
        throw ConfigError("RT-E11", detail::concat("`rtrain run` is a rank of ", launch::launcher(),
                                                   "; start `rtrain run` alone, or start `rtrain "
                                                   "exec -- program` there"));
    }
}

/// Throws ConfigError [RT-E5] to [RT-E7], [RT-E10], [RT-E11], [RT-E13].
inline void check_program(const ProgramOptions& options) {
    require_no_rank();
    if (options.command.empty() || options.command[0].empty()) {
        throw ConfigError("RT-E5", "the command has no program; expected the program and its "
                                   "arguments");
    }
    if (options.scaling.num_workers.is_elastic() && std::getenv("MASTER_PORT") != nullptr) {
        throw ConfigError("RT-E13", "MASTER_PORT is set, but the number of ranks is a range, whose "
                                    "starts each get a new port; unset it");
    }
    if (!options.scaling.mpirun_args.empty()) { // each machine looks for itself
        return;
    }
    const std::string path = path_of_program(options.command[0]);
    if (is_rtrain_program(path)) {
        throw ConfigError("RT-E10", detail::concat(options.command[0],
                                                   " is an rtrain program, which starts its own "
                                                   "ranks; run it without `rtrain run`"));
    }
    require_script(options.command);
}

} // namespace rtrain::program
