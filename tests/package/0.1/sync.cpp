// SPDX-License-Identifier: Apache-2.0
// Gives the trackers of a run that has ended what they lack of its reports: servers that were away,
// and files of a run that was killed.
#include <rtrain/track/run_report.hpp>
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
    if (!rtrain::track::ending_of(argv[1])) { // it was killed
        rtrain::track::write_report(rtrain::Result::from_path(argv[1]));
    }
#ifdef RTRAIN_EXAMPLE_HTTPS
    const auto left = rtrain::track::sync(argv[1], rtrain::track::https());
#else
    const auto left = rtrain::track::sync(argv[1]);
#endif
    for (const auto& path : left) {
        std::cout << "synced " << path.filename().string() << '\n';
    }
    if (left.empty()) {
        std::cout << "no tracker that could be brought up to date has left anything in " << argv[1]
                  << '\n';
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
