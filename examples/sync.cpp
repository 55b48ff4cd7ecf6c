// SPDX-License-Identifier: Apache-2.0
// Brings the reports of a run that has ended to the servers of its trackers that were away
// meanwhile.
#include <rtrain/track/sync.hpp>
#ifdef RTRAIN_EXAMPLE_HTTPS // servers at https://...
#include <rtrain/track/https.hpp>
#endif

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "usage: sync <run directory>\n";
        return 2;
    }
#ifdef RTRAIN_EXAMPLE_HTTPS
    const auto notes = rtrain::track::sync(argv[1], rtrain::track::https());
#else
    const auto notes = rtrain::track::sync(argv[1]);
#endif
    for (const auto& note : notes) {
        std::cout << "synced " << note.filename().string() << '\n';
    }
    if (notes.empty()) {
        std::cout << "no tracker of a server has left a note in " << argv[1] << '\n';
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
