// SPDX-License-Identifier: Apache-2.0
/// @file
/// HandedInput: the standard input that main() has read before fit(), for child processes, which
/// run main(), too. They read a copy from a file.
#pragma once

#include <rtrain/process/stdio/standard_input.hpp>
#include <rtrain/storage/file/file.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace rtrain::launch {

/// Create before main() begins.
class HandedInput {
public:
    using Variables = std::map<std::string, std::string>;
    static constexpr const char* variable = "RTRAIN_STANDARD_INPUT";

    /// Records what main() has read; call when fit() begins.
    void look() { input_.look(); }

    /// Variables that pass it to processes on this machine; empty if main() has read none.
    /// `directory()` returns the directory for the file. Throws ConfigError [RT-C24].
    template <class Directory>
    [[nodiscard]] Variables variables(Directory&& directory) {
        if (file_.empty() && input_.was_read()) {
            const std::filesystem::path file = directory() / "standard-input";
            storage::replace_file_unsynced(file, input_.bytes());
            file_ = file.string();
        }
        return file_.empty() ? Variables() : Variables{{variable, file_}};
    }

    /// The same for ranks started by mpirun. Without variables, rank 0 gets the remaining input.
    /// `remote`: there are ranks on other machines.
    template <class Directory>
    [[nodiscard]] Variables rank_variables(bool remote, Directory&& directory) {
        auto given = variables(directory);
        if (given.empty()) {
            input_.give_away();
        } else if (remote) {
            StandardInput::refuse("some of them run on other machines");
        }
        return given;
    }

    /// Makes this process read from the start what its parent has read.
    void take() {
        if (const char* const file = std::getenv(variable)) {
            file_ = file;
            StandardInput::read_from(file);
        }
        ::unsetenv(variable);
    }

    /// The file was removed with its directory.
    void forget_file() { file_.clear(); }

private:
    StandardInput input_; ///< of this process
    std::string file_;    ///< that children, or this process, read instead
};

} // namespace rtrain::launch
