// SPDX-License-Identifier: Apache-2.0
/// @file
/// RoomWatch: looks for free slots while an elastic run has fewer ranks than its maximum.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/supervise/hosts.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
#include <rtrain/process/os/thread.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <optional>
#include <utility>

namespace rtrain::launch {

/// Lives in the thread that runs the io_context, which may outlive it.
class RoomWatch {
public:
    /// `found` is called when more ranks fit; returns false to look again later.
    RoomWatch(boost::asio::io_context& io, const ScalingConfig& scaling,
              std::function<bool()> found)
        : io_(io), scaling_(scaling), found_(std::move(found)), timer_(io) {}
    RoomWatch(const RoomWatch&) = delete;
    RoomWatch& operator=(const RoomWatch&) = delete;

    /// Looks periodically for room for more than `ranks` ranks, until the next watch() or stop().
    void watch(int ranks) {
        stop();
        if (!scaling_.num_workers.is_elastic() || ranks >= scaling_.num_workers.max()) {
            return;
        }
        timer_.expires_after(detail::duration_of(scaling_.elastic_resize_monitor_interval_s));
        timer_.async_wait(watch_->guard([this, ranks](const boost::system::error_code& error) {
            if (!error) {
                look(ranks);
            }
        }));
    }

    void stop() {
        watch_.emplace();
        timer_.cancel();
    }

private:
    /// Hosts may take seconds to answer.
    void look(int ranks) {
        try {
            const auto seen = watch_->guard([this, ranks](bool more) {
                if (!(more && found_())) {
                    watch(ranks);
                }
            });
            probe_ = process::Thread([this, ranks, seen] {
                const bool more = has_room_for_more_than(ranks);
                boost::asio::post(io_, [seen, more] { seen(more); });
            });
        } catch (const LaunchError& error) { // no thread
            console::warn("cannot look for room: %s", error.what());
            watch(ranks);
        }
    }

    [[nodiscard]] bool has_room_for_more_than(int ranks) const {
        try {
            return find_room(scaling_).ranks > ranks;
        } catch (const LaunchError& error) { // a hostfile that is being written, perhaps
            console::warn("cannot look for room: %s", error.what());
            return false;
        }
    }

    boost::asio::io_context& io_;
    const ScalingConfig& scaling_;
    std::function<bool()> found_;
    boost::asio::steady_timer timer_;
    std::optional<Lifetime> watch_; ///< of the current one; each watch() and stop() ends it
    process::Thread probe_;         ///< destroyed before what it uses
};

} // namespace rtrain::launch
