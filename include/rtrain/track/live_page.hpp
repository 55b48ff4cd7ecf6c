// SPDX-License-Identifier: Apache-2.0
/// @file
/// LivePage: report.html while the run goes on, at a port of this machine, with what is reported as
/// it is reported. A thread serves it, and no report waits for that. Guide: docs/live.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observer.hpp>

#include <memory>
#include <string>

namespace rtrain::track {

class LivePage : public Observer {
public:
    /// `port`: see ConsoleConfig::live. Nothing is done before the run starts.
    LivePage(int port, CheckpointConfig config);
    ~LivePage() override;

    [[nodiscard]] std::string name() const override { return "the live page"; }

    void started(const Started& event) override;
    void reported(const Reported& event) override;
    void saved(const Saved& event) override;
    void restarting(const Restarting& event) override;
    /// Waits for pages that are open to show the end, for a second or two.
    void ended(const Ended& event) override;

private:
    class Server;

    int port_;
    CheckpointConfig config_;
    std::unique_ptr<Server> server_; ///< while the run goes on
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/live_page_definitions.hpp>
#endif
