// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrow's S3 within a process: initialization, finalization and retries.
#pragma once

#include <rtrain/process/os/owner.hpp>
#include <rtrain/storage/cloud/arrow_status.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <utility>

namespace rtrain::storage::internal {

/// Retries of single requests by the AWS client. Few, because they cannot be canceled at a
/// transfer's deadline.
class RequestRetries final : public arrow::fs::S3RetryStrategy {
public:
    explicit RequestRetries(TransferConfig config) : config_(std::move(config)) {}
    bool ShouldRetry(const AWSErrorDetail& error, std::int64_t attempted_retries) override {
        return error.should_retry && attempted_retries + 1 < std::min(config_.attempts, 5);
    }
    std::int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&,
                                               std::int64_t attempted_retries) override {
        return static_cast<std::int64_t>(
            1000 * pause_s(config_, static_cast<int>(std::min<std::int64_t>(attempted_retries + 1,
                                                                            config_.attempts))));
    }

private:
    TransferConfig config_;
};

/// Opens S3. Arrow requires one initialization, and finalization before the process exits.
[[nodiscard]] inline arrow::Result<std::shared_ptr<arrow::fs::FileSystem>>
make_s3(const arrow::fs::S3Options& options) {
    auto files = arrow::fs::S3FileSystem::Make(options);
    struct End {
        process::Owner owner{};
        ~End() {
            if (owner.is_this_process()) { // otherwise Arrow's threads do not exist here
                static_cast<void>(arrow::fs::EnsureS3Finalized());
            }
        }
    };
    static const End end; // constructed after Arrow's static objects, so destroyed before them
    return files;
}

inline void start_s3() {
    static const arrow::Status status = [] {
        if (arrow::fs::IsS3Initialized()) {
            return arrow::Status::OK();
        }
        auto options = arrow::fs::S3GlobalOptions::Defaults();
        struct sigaction action = {};
        // A server that closes a connection must not kill the training.
        options.install_sigpipe_handler =
            ::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
        return arrow::fs::InitializeS3(options);
    }();
    require(status, "start", "Arrow's S3");
}

} // namespace rtrain::storage::internal
