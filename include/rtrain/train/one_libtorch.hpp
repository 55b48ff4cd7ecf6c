// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the libtorch that runs is the one that the program was compiled with.
#pragma once

#include <rtrain/base/error.hpp>

#include <torch/version.h>
#if __has_include(<caffe2/core/common.h>)
#include <caffe2/core/common.h>
#endif

#include <string>

namespace rtrain::detail {

/// Throws ConfigError [RT-C43] when the loader has found a libtorch of another version than the
/// headers were of: another one on LD_LIBRARY_PATH, or that of a Python process. Their classes
/// differ in layout, so that what follows would be wrong numbers or a crash. A third number that
/// differs is taken, because such versions mend only. Of a libtorch that does not say which it is,
/// nothing is known.
inline void require_one_libtorch() {
#if __has_include(<caffe2/core/common.h>)
    // Not at::show_config(), which asks the CUDA runtime as well.
    const auto& options = caffe2::GetBuildOptions();
    const auto loaded = options.find("TORCH_VERSION");
    const std::string compiled = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".");
    if (loaded != options.end() && loaded->second.rfind(compiled, 0) != 0) {
        throw ConfigError("RT-C43",
                          concat("the program was compiled with libtorch " TORCH_VERSION
                                 ", but runs with ",
                                 loaded->second,
                                 ", which has been found first; take its directory out of "
                                 "LD_LIBRARY_PATH, or compile the program with it"));
    }
#endif
}

} // namespace rtrain::detail
