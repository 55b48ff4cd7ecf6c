// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files of tests, and directories that vanish. Includes neither libtorch nor MPI.
#pragma once

#include <rtrain/process/os/environment.hpp>
#include <rtrain/storage/file/file.hpp>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace test {

/// Returns when all ranks have called it; support.hpp sets it in programs with ranks.
inline void (*wait_for_ranks)() = [] {};

/// What the ranks of one mpirun have in common, and no other: Open MPI 4, then 5; "" elsewhere.
inline std::string name_of_job() {
    for (const char* const variable : {"OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"}) {
        if (const char* const job = std::getenv(variable)) {
            return job;
        }
    }
    return "";
}

/// A directory under the temporary one, removed at the end. Under mpirun, ranks share it: its name
/// comes from the job.
class Directory {
public:
    explicit Directory(const std::string& name) {
        const std::string job = name_of_job();
        shared_ = rtrain::launch::ranks().has_value();
        const auto id =
            job.empty() ? static_cast<std::size_t>(::getpid()) : std::hash<std::string>{}(job);
        path_ = std::filesystem::temp_directory_path() /
                ("rtrain-test-" + std::to_string(id) + "-" + name);
        if (!shared_) {
            std::filesystem::remove_all(path_);
        }
        std::filesystem::create_directories(path_);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        std::error_code ignored;
        const bool waits = shared_ && std::uncaught_exceptions() == 0; // else others may be elsewhere
        if (waits) {
            wait_for_ranks();
        }
        if (!shared_ || rtrain::launch::env_int("OMPI_COMM_WORLD_RANK") == 0) {
            std::filesystem::remove_all(path_, ignored);
        }
        if (waits) { // the next one may have the same name
            wait_for_ranks();
        }
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
    bool shared_ = false;
};

inline std::string read(const std::filesystem::path& file) {
    return rtrain::storage::read_file(file);
}
/// Creates the directory of the file, if there is none.
inline void write(const std::filesystem::path& file, std::string_view text) {
    if (file.has_parent_path()) {
        std::filesystem::create_directories(file.parent_path());
    }
    std::ofstream(file, std::ios::binary) << text;
}

} // namespace test
