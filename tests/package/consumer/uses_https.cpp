// SPDX-License-Identifier: Apache-2.0
// Expected: a server that is away, "[RT-V61]".
#include <rtrain/track/https.hpp>

#include <cstdio>

int main() {
    try {
        (void)rtrain::track::https()(rtrain::track::parse_url("https://127.0.0.1:9"), {});
    } catch (const rtrain::Error& error) {
        std::printf("%s\n", error.what());
    }
}
