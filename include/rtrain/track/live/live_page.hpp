// SPDX-License-Identifier: Apache-2.0
/// @file
/// LivePage: serves report.html during the run, on a port of this machine, with each report as it
/// arrives. A thread serves it; reports never wait for it. Guide: docs/live.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observer.hpp>

#include <memory>
#include <string>

namespace rtrain::track {

class LivePage : public Observer {
public:
    /// `port`: see ConsoleConfig::live. Does nothing before the run starts.
    LivePage(int port, CheckpointConfig config);
    ~LivePage() override;

    [[nodiscard]] std::string name() const override { return "the live page"; }

    void started(const Started& event) override;
    void reported(const Reported& event) override;
    void saved(const Saved& event) override;
    void restarting(const Restarting& event) override;
    /// Waits up to 1.5 s for open pages to show the end.
    void ended(const Ended& event) override;

private:
    class Server;

    int port_;
    CheckpointConfig config_;
    std::unique_ptr<Server> server_; ///< while the run trains
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/live/live_page_definitions.hpp>
#endif
