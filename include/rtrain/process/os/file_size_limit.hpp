// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns a limit on the size of files (ulimit -f) into a write error instead of a signal that ends
/// the process. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <string>

#include <signal.h>
#include <sys/resource.h>

namespace rtrain::process {

/// From now on writing beyond the limit fails with EFBIG, unless the program handles SIGXFSZ. A
/// handler, because child programs would inherit an ignored signal.
inline void survive_file_size_limit() noexcept {
    struct sigaction action {};
    if (::sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = [](int) {};
        action.sa_flags = SA_RESTART;
        ::sigaction(SIGXFSZ, &action, nullptr);
    }
}

/// Advice about EFBIG; begins with "; ".
[[nodiscard]] inline std::string file_size_advice() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return "; the file system does not support larger files: use a different one";
    }
    return rtrain::detail::concat("; a process may write files of ", limit.rlim_cur,
                                  " bytes here: raise `ulimit -f`");
}

} // namespace rtrain::process
