// SPDX-License-Identifier: Apache-2.0
/// @file
/// How patient rtrain is with a storage service. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace rtrain::storage {

/// How far a transfer is.
struct TransferProgress {
    std::string file;              ///< the one that was transferred last
    std::uint64_t bytes_done = 0;  ///< bytes that have gone
    std::uint64_t bytes_total = 0; ///< bytes there are
};

/// Of transfers from and to storage services. Local files need none of it.
struct TransferConfig {
    int parallel = 4; ///< files at a time
    /// Of each file, the first one included. In each, S3 also tries every request again, up to 5
    /// times in all. Only failures that may pass are tried again: an overloaded or failing server,
    /// a lost connection, a time limit.
    int attempts = 5;
    /// The pause after the first failure. It doubles with each further one up to `max_backoff_s`;
    /// each pause is drawn at random between half of that and all of it.
    double first_backoff_s = 0.2;
    double max_backoff_s = 10;     ///< longest pause between two tries, in seconds
    double request_timeout_s = 30; ///< of a request that stays without an answer
    double deadline_s = 1800;      ///< of all files of one upload or download together
    /// Called after each file, by one thread at a time.
    std::function<void(const TransferProgress&)> progress = {};
};

} // namespace rtrain::storage
