// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of a program's options before any rank starts, so that mistakes are one line.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/program_path.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <boost/json/value.hpp>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrain::program {

/// True if a file is an executable that contains rtrain's trainer: it has the name of a variable
/// that only ranks of its driver use.
[[nodiscard]] inline bool is_rtrain_program(const std::string& path) {
    constexpr std::string_view elf = "\x7f"
                                     "ELF";
    constexpr std::string_view marker("RTRAIN_SESSION_FIT", 19); // with its null
    try {
        const storage::Mapping file(path);
        const std::string_view bytes(file.data(), file.bytes().size());
        return bytes.starts_with(elf) && bytes.find(marker) != std::string_view::npos;
    } catch (const StorageError&) { // one that may be executed, but not read
        return false;
    }
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

/// Throws ConfigError [RT-E66] for NaN and infinities, which JSON does not have. `name`: of
/// `value`.
inline void require_json(const boost::json::value& value, const std::string& name) {
    const double* const number = value.if_double();
    if (number != nullptr && !std::isfinite(*number)) {
        throw ConfigError("RT-E66", detail::concat("the configuration has ", name, " = ", *number,
                                                   ", which JSON cannot represent, so the program "
                                                   "cannot get it; use a finite number, null or a "
                                                   "text"));
    }
    const std::string prefix = name.empty() ? "" : name + "/";
    if (const auto* const object = value.if_object()) {
        for (const auto& item : *object) {
            require_json(item.value(), prefix + std::string(item.key()));
        }
    } else if (const auto* const array = value.if_array()) {
        for (std::size_t i = 0; i < array->size(); ++i) {
            require_json((*array)[i], prefix + std::to_string(i));
        }
    }
}

/// Throws ConfigError [RT-E5] to [RT-E7], [RT-E10], [RT-E11], [RT-E13], [RT-E63].
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
    if (!options.preload.empty()) {
        (void)preloadable_script(options.command);
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
