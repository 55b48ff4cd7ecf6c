// SPDX-License-Identifier: Apache-2.0
/// @file
/// Refuses to compile a program that links an installed librtrain_compiled.a, but includes a different
/// libtorch [RT-C44]. Otherwise the linker would report undefined symbols, or the program would crash.
#pragma once

// Set by rtrain::compiled and by rtrain-compiled.pc when the library is installed.
#ifdef RTRAIN_COMPILED_LIBTORCH_MINOR
#include <torch/version.h>

#define RTRAIN_QUOTED_AS_IT_IS(text) #text
#define RTRAIN_QUOTED(text) RTRAIN_QUOTED_AS_IT_IS(text)
// A different patch version is accepted, as in RT-C43.
static_assert(TORCH_VERSION_MAJOR == RTRAIN_COMPILED_LIBTORCH_MAJOR &&
                  TORCH_VERSION_MINOR == RTRAIN_COMPILED_LIBTORCH_MINOR,
              "the installed librtrain_compiled.a was compiled for libtorch " RTRAIN_QUOTED(
                  RTRAIN_COMPILED_LIBTORCH_MAJOR) "." RTRAIN_QUOTED(RTRAIN_COMPILED_LIBTORCH_MINOR)
                  ", but this program is compiled with libtorch " TORCH_VERSION
                  "; install rtrain with -DRTRAIN_INSTALL_COMPILED=ON for this libtorch, or link "
                  "rtrain::rtrain [RT-C44]");
#undef RTRAIN_QUOTED
#undef RTRAIN_QUOTED_AS_IT_IS
#endif
