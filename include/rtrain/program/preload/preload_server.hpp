// SPDX-License-Identifier: Apache-2.0
/// @file
/// PreloadServer: a Python process that imports modules once and forks the ranks of this machine
/// (examples/python/rtrain/_preload.py). Ranks that start again then need no import.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/rank_environment.hpp>
#include <rtrain/program/rank_process.hpp>

#include <filesystem>
#include <string>

namespace rtrain::program {

class PreloadServer {
public:
    /// `directory`: of its socket. `variables`: of the ranks, as far as they are the same. The
    /// server imports while ranks start, and tells them what it cannot import. Throws ConfigError
    /// [RT-E63] unless the command is a Python script or module.
    PreloadServer(const ProgramOptions& options, const std::filesystem::path& directory,
                  Variables variables);
    PreloadServer(const PreloadServer&) = delete;
    PreloadServer& operator=(const PreloadServer&) = delete;
    ~PreloadServer() { process_.kill(); }

    /// Where ranks ask for their process.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] bool has_ended() const { return process_.has_ended(); }

private:
    std::string path_;
    RankProcess process_; ///< ends with this object
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/preload/preload_server_definitions.hpp>
#endif
