// SPDX-License-Identifier: Apache-2.0
/// @file
/// OwnLog: a rank's log file, according to RunConfig::logging. A rank without a driver writes its
/// own.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/process/stdio/output_tee.hpp>
#include <rtrain/run/run_directory.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrain::detail {

class OwnLog {
public:
    /// `name`: of the run, as on rank 0. Collective if logs are written.
    OwnLog(AnyBackend& backend, const RunConfig& run, const std::string& name, bool has_driver) {
        console::settings().rank = backend.rank();
        if (!run.logging.to_file) {
            return;
        }
        if (has_driver) { // which captures this rank's output
            process::OutputTee::flush_each_line();
            return;
        }
        const auto complain = [before = std::make_shared<process::Descriptor>(
                                   process::OutputTee::copy_of(OutputStream::err))](
                                  const std::string& what) { // possibly in the tee's thread
            if (console::Level::warning >= console::settings().least) {
                process::write_all(before->get(),
                                   console::line_of(console::Level::warning, what.c_str()) + "\n");
            }
        };
        logs_ = std::make_shared<track::RankLogs>(run_location(run, broadcast(backend, name, 0)),
                                                  run.logging.json, complain);
        try {
            tee_.emplace(
                [logs = logs_, rank = backend.rank()](OutputStream stream, std::string_view line) {
                    logs->add(rank, stream, line);
                });
        } catch (const std::system_error& error) {
            complain(error.what());
        }
    }
    OwnLog(const OwnLog&) = delete;
    OwnLog& operator=(const OwnLog&) = delete;
    ~OwnLog() {
        tee_.reset();
        if (logs_) {
            logs_->close();
        }
    }

    /// Called before each call of the training function.
    void begin() {
        if (tee_) {
            tee_->settle();
            logs_->begin();
        }
    }

private:
    std::shared_ptr<track::RankLogs> logs_; ///< the tee's thread may outlive this object
    std::optional<process::OutputTee> tee_;
};

} // namespace rtrain::detail
