// SPDX-License-Identifier: Apache-2.0
/// @file
/// main() of the programs that measure one thing after another within one training.
#pragma once

#include <rtrain/trainer.hpp>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

/// For the command line `<program> STORAGE_DIRECTORY SECONDS <things>...`: calls
/// `measure(worker, seconds, thing)` for each thing, with one thread a rank.
template <class Measure>
int measure_each(int argc, char** argv, const std::string& program, const std::string& things,
                 const Measure& measure) {
    if (argc < 4) {
        std::cerr << "usage: " << program << " STORAGE_DIRECTORY SECONDS " << things << "..."
                  << std::endl;
        return EXIT_FAILURE;
    }
    try {
        rtrain::Trainer<> trainer{{
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(1),
                        .threads_per_worker = 1},
            .run = {.storage_path = argv[1]},
        }};
        (void)trainer.fit([&](auto& worker) {
            for (int i = 3; i < argc; ++i) {
                measure(worker, std::atof(argv[2]), std::string(argv[i]));
            }
        });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::cerr << program << ": " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
