// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that the loaded libtorch is the one that the program was compiled with.
#pragma once

#include <rtrain/base/error.hpp>

#include <torch/version.h>
#if __has_include(<caffe2/core/common.h>)
#include <caffe2/core/common.h>
#endif

#include <string>

namespace rtrain::detail {

/// Throws ConfigError [RT-C43] if the loaded libtorch has a different version than the headers: a
/// different one is on LD_LIBRARY_PATH, or belongs to a Python process. Class layouts differ, which
/// would cause wrong numbers or a crash. Patch versions may differ. Passes if libtorch does not
/// report its version.
inline void require_one_libtorch() {
#if __has_include(<caffe2/core/common.h>)
    // at::show_config() would also query the CUDA runtime.
    const auto& options = caffe2::GetBuildOptions();
    const auto loaded = options.find("TORCH_VERSION");
    const std::string compiled = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".");
    if (loaded != options.end() && loaded->second.rfind(compiled, 0) != 0) {
        throw ConfigError("RT-C43",
                          concat("the program was compiled with libtorch " TORCH_VERSION
                                 ", but runs with ",
                                 loaded->second,
                                 ", which was found first; remove its directory from "
                                 "LD_LIBRARY_PATH, or compile the program with this version"));
    }
#endif
}

} // namespace rtrain::detail
