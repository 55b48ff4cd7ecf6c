// SPDX-License-Identifier: Apache-2.0
/// @file
/// HandedInput: what main() has read from standard input before fit(), for the processes that this
/// one starts, which run main(), too. They read a copy in a file.
#pragma once

#include <rtrain/process/standard_input.hpp>
#include <rtrain/storage/file.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace rtrain::launch {

/// To be made before main() begins.
class HandedInput {
public:
    using Variables = std::map<std::string, std::string>;
    static constexpr const char* variable = "RTRAIN_STANDARD_INPUT";

    /// Notices what main() has read; to be called when fit() begins.
    void look() { input_.look(); }

    /// What gives it to processes on this machine; empty when main() has read none. `directory()`
    /// is where the file is made. Throws ConfigError [RT-C24].
    template <class Directory>
    [[nodiscard]] Variables variables(Directory&& directory) {
        if (file_.empty() && input_.was_read()) {
            const std::filesystem::path file = directory() / "standard-input";
            storage::leave_word(file, input_.bytes());
            file_ = file.string();
        }
        return file_.empty() ? Variables() : Variables{{variable, file_}};
    }

    /// The same for ranks that mpirun starts. Without variables, it hands on to rank 0 what there
    /// is. `remote`: whether there are ranks on other machines.
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

    /// Has this process read from its beginning what the one that has started it has read.
    void take() {
        if (const char* const file = std::getenv(variable)) {
            file_ = file;
            StandardInput::read_from(file);
        }
        ::unsetenv(variable);
    }

    /// The file is gone, with its directory.
    void forget_file() { file_.clear(); }

private:
    StandardInput input_; ///< of this process
    std::string file_;    ///< that others are to read instead, or this one does
};

} // namespace rtrain::launch
