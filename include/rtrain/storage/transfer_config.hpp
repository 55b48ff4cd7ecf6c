// SPDX-License-Identifier: Apache-2.0
/// @file
/// Limits of transfers to and from a storage service. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace rtrain::storage {

/// Progress of a transfer.
struct TransferProgress {
    std::string file;              ///< the last transferred file
    std::uint64_t bytes_done = 0;  ///< bytes transferred
    std::uint64_t bytes_total = 0; ///< total bytes
};

/// Options of transfers from and to storage services. Local files ignore them.
struct TransferConfig {
    int parallel = 4; ///< files at a time
    /// Attempts per file, including the first. In each, S3 also tries every request up to 5 times.
    /// Only transient failures are retried: an overloaded or failing server, a lost connection, a
    /// timeout.
    int attempts = 5;
    /// Pause after the first failure. It doubles with each further one up to `max_backoff_s`; each
    /// pause is random, between half and all of that.
    double first_backoff_s = 0.2;
    double max_backoff_s = 10;     ///< longest pause between two attempts, in seconds
    double request_timeout_s = 30; ///< of a request without a response
    double deadline_s = 1800;      ///< of all files of one upload or download
    /// Called after each file, by one thread at a time.
    std::function<void(const TransferProgress&)> progress = {};
};

} // namespace rtrain::storage
