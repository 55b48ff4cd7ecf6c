// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a fuzz target says of its subject.
#pragma once

#include <cstdio>
#include <cstdlib>

/// Ends the program, which is a finding, unless `condition` holds.
inline void require(bool condition, const char* what) {
    if (!condition) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::abort();
    }
}
