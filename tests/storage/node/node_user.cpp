// SPDX-License-Identifier: Apache-2.0
// usage: storage_node_user URI DEADLINE_S
// Takes a node's copy of the files at URI, prints its directory or the error, and keeps it until
// its standard input ends.
#include "storage/services.hpp"

#include <rtrain/storage/node/node_cache.hpp>

int main(int, char** argv) {
    auto config = test::quick();
    config.deadline_s = std::stod(argv[2]);
    config.request_timeout_s = config.deadline_s;
    try {
        const auto [files, path] = rtrain::storage::locate(argv[1], config);
        const auto entries = files.list(path);
        std::puts("found");
        std::fflush(stdout);
        const auto copy = rtrain::storage::copy_to_node(files, path, entries, "1", config);
        std::printf("%s\n", copy.directory().c_str());
        std::fflush(stdout);
        while (std::getchar() != EOF) {
        }
    } catch (const rtrain::Error& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
