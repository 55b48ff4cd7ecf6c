// SPDX-License-Identifier: Apache-2.0
// Writes report.html, a page that shows a run, into the run's directory anew, for example while it
// continues, or after its first rank was killed.
#include <rtrain/track/run_report.hpp>
#ifdef RTRAIN_EXAMPLE_ARROW // s3://... and others
#include <rtrain/storage/arrow.hpp>
#endif

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "usage: report <run>\n";
        return 2;
    }
    std::cout << rtrain::track::write_report(rtrain::Result::from_path(argv[1])) << '\n';
    return 0;
} catch (const rtrain::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
