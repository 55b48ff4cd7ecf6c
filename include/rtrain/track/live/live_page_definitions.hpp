// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door live_page.hpp: the thread that serves the page.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/track/live/live_note.hpp>
#include <rtrain/track/live/live_page.hpp>
#include <rtrain/track/live/live_run.hpp>
#include <rtrain/track/live/live_server.hpp>
#include <rtrain/track/page/run_report.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include <sys/resource.h>

namespace rtrain::track {

class LivePage::Server {
public:
    /// Throws an Error with a user-readable reason if the page cannot be served.
    Server(int port, CheckpointConfig config, const Started& event)
        : run_(std::move(config)), note_file_(note_file_of(event)) {
        if (note_file_) {
            note_ = LiveNote::read(*note_file_).value_or(LiveNote{});
        }
        if (note_.token.empty()) {
            note_ = LiveNote::make();
        }
        listen(port);
        listener_->begin();
        note(event); // before the address is published
        boost::asio::post(io_, [this, event] { run_.begin(event); });
        const launch::SignalsBlocked blocked;
        thread_ = rtrain::process::Thread([this] { work(); });
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server() {
        io_.stop();
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    [[nodiscard]] std::string address() const {
        return rtrain::detail::concat("http://127.0.0.1:", note_.port, "/?token=", note_.token);
    }

    void resume(const Started& event) {
        boost::asio::post(io_, [this, event] {
            note(event);
            run_.begin(event);
            listener_->for_each([](live::Connection& one) { one.rewind(); });
        });
    }
    void grow(std::uint64_t log_size) {
        boost::asio::post(io_, [this, log_size] {
            run_.grow(log_size);
            listener_->for_each([](live::Connection& one) { one.go_on(); });
        });
    }
    void checkpoint(const std::string& name) {
        boost::asio::post(io_, [this, name] {
            run_.checkpoints_change();
            tell("checkpoint", {{"checkpoint", name}});
        });
    }
    void set_status(std::string status, std::string error) {
        boost::asio::post(io_, [this, status = std::move(status), error = std::move(error)] {
            run_.set_status(status, error);
            tell("status", {{"status", status}});
        });
    }

    /// `goes_on`: another start may resume the run.
    void finish(bool goes_on) {
        boost::asio::post(io_, [this, goes_on] {
            if (!goes_on) {
                tell("end", {});
            }
            until_ = std::chrono::steady_clock::now() + (goes_on ? moment : patience);
            stop_when_all_have_left();
        });
        thread_.join();
    }

private:
    static constexpr std::chrono::milliseconds patience{1500}; ///< for pages to show the end
    static constexpr std::chrono::milliseconds moment{200};    ///< for pages that reconnect

    /// None on a storage service, where rtrain cannot control who reads the file.
    [[nodiscard]] static std::optional<std::filesystem::path> note_file_of(const Started& event) {
        return event.directory.filesystem.is_local()
                   ? std::optional(std::filesystem::path(event.directory.path) / live_file)
                   : std::nullopt;
    }

    /// Listens on the given port; if 0, on the port of the previous start if free.
    void listen(int port) {
        if (port == 0 && note_.port != 0) {
            try {
                listener_.emplace(io_, note_.port, live::Shown{note_, run_});
                return;
            } catch (const boost::system::system_error&) { // another run uses it
            }
        }
        try {
            listener_.emplace(io_, port, live::Shown{note_, run_});
        } catch (const boost::system::system_error& error) {
            throw Error("RT-V80",
                        rtrain::detail::concat(
                            "cannot serve the live page at port ", port, " of ",
                            storage::host_name(), ": ", error.code().message(),
                            "; set console.live to a different port, or to 0 for any free "
                            "port"));
        }
        note_.port = listener_->port();
    }

    void note(const Started& event) {
        note_.begin({event.attempt, event.iteration});
        if (note_file_) {
            try {
                note_.write(*note_file_);
            } catch (const std::exception& error) {
                complain("open pages will not reconnect after a restart", error);
            }
        }
    }

    void complain(const char* what, const std::exception& error) {
        if (!std::exchange(has_complained_, true)) {
            console::warn("the live page: %s: %s", what, error.what());
        }
    }

    void tell(const char* event, const Config& data) {
        listener_->for_each([&](live::Connection& one) { one.tell(event, json::serialize(data)); });
    }

    void work() {
        constexpr int low = 10;
        ::setpriority(PRIO_PROCESS, 0, low); // this thread only: training has priority
        for (;;) {
            try {
                io_.run();
                return;
            } catch (const std::exception& error) { // such as an unreadable log
                complain("some reports may be missing", error);
            }
        }
    }

    void stop_when_all_have_left() {
        if (!listener_->has_streams() || std::chrono::steady_clock::now() > until_) {
            io_.stop();
            return;
        }
        timer_.expires_after(std::chrono::milliseconds(10));
        timer_.async_wait([this](const boost::system::error_code&) { stop_when_all_have_left(); });
    }

    LiveNote note_;
    LiveRun run_;
    std::optional<std::filesystem::path> note_file_;
    boost::asio::io_context io_{1};
    boost::asio::steady_timer timer_{io_};
    std::optional<live::Listener> listener_;
    std::chrono::steady_clock::time_point until_{};
    bool has_complained_ = false;
    rtrain::process::Thread thread_; ///< the only user of the members above, once started
};

RTRAIN_DOOR LivePage::LivePage(int port, CheckpointConfig config)
    : port_(port), config_(std::move(config)) {}
RTRAIN_DOOR LivePage::~LivePage() = default;

RTRAIN_DOOR void LivePage::started(const Started& event) {
    if (server_) {
        server_->resume(event);
        return;
    }
    try {
        server_ = std::make_unique<Server>(port_, config_, event);
        console::say("the run can be watched on %s: %s", storage::host_name().c_str(),
                     server_->address().c_str());
    } catch (const Error& error) {
        console::warn("%s", error.what());
    }
}

RTRAIN_DOOR void LivePage::reported(const Reported& event) {
    if (server_) {
        server_->grow(event.log_size);
    }
}

RTRAIN_DOOR void LivePage::saved(const Saved& event) {
    if (server_) {
        server_->checkpoint(event.checkpoint);
    }
}

RTRAIN_DOOR void LivePage::restarting(const Restarting& event) {
    if (server_) {
        server_->set_status("restarted after a failure: " + event.reason, event.what);
    }
}

RTRAIN_DOOR void LivePage::ended(const Ended& event) {
    if (!server_) {
        return;
    }
    const bool has_finished = event.how == Ended::How::finished;
    const bool was_stopped = event.result != nullptr && !event.result->stop_reason.empty();
    server_->set_status(was_stopped ? "stopped: " + event.result->stop_reason
                                    : std::string(words_of(event.how)),
                        event.message);
    server_->finish(!has_finished);
    server_.reset();
}

} // namespace rtrain::track
