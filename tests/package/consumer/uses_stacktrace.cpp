// SPDX-License-Identifier: Apache-2.0
// Expected: the name of a function that the program does not export.
#include <rtrain/process/stacktrace.hpp>

#include <cstdint>
#include <cstdio>

static int hidden() {
    return 1;
}

int main() {
    const auto texts = rtrain::launch::symbolizer({reinterpret_cast<std::uintptr_t>(hidden)});
    std::printf("%s\n", texts.front().c_str());
}
