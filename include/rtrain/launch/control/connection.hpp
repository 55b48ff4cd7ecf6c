// SPDX-License-Identifier: Apache-2.0
/// @file
/// One connection on the driver's side of the control channel, from accept to close.
#pragma once

#include <rtrain/launch/control/frame_reader.hpp>
#include <rtrain/launch/control/listener.hpp>
#include <rtrain/process/os/token.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::launch {

class Connection : public std::enable_shared_from_this<Connection> {
public:
    using Code = boost::system::error_code;

    /// Bytes in the first frame, a Hello.
    static constexpr std::size_t max_hello = 4096;

    explicit Connection(ControlListener::Caller its_caller)
        : caller(std::move(its_caller)), deadline(caller.socket.get_executor()), frames(max_hello) {
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    ControlListener::Caller caller;
    boost::asio::steady_timer deadline; ///< for its Hello
    int rank = -1;                      ///< -1: no Hello yet
    FrameReader frames;                 ///< after the token

    /// True while messages from it are handled.
    [[nodiscard]] bool is_open() const { return caller.socket.is_open() && !when_sent_; }
    /// True if it was sent a refusal.
    [[nodiscard]] bool is_told() const { return static_cast<bool>(when_sent_); }
    [[nodiscard]] bool has_outgoing() const { return !outgoing_.empty(); }

    /// Calls `heard(bytes)` for all received bytes, and `lost()` once the other side has ended it;
    /// neither once it is closed here.
    template <class LineCallback, class Lost>
    void read(LineCallback heard, Lost lost) {
        caller.socket.async_read_some(
            boost::asio::buffer(received_),
            [self = shared_from_this(), heard = std::move(heard),
             lost = std::move(lost)](const Code& error, std::size_t size) mutable {
                if (!self->is_open()) {
                    return;
                }
                if (error) {
                    lost();
                    return;
                }
                heard(std::string_view(self->received_.data(), size));
                if (self->is_open()) {
                    self->read(std::move(heard), std::move(lost));
                }
            });
    }

    /// Removes the token from the front of `bytes`. Returns whether it is the right one; empty
    /// while it is incomplete.
    [[nodiscard]] std::optional<bool> shows(const std::string& token, std::string_view& bytes) {
        const auto part = bytes.substr(0, token.size() - token_.size());
        token_ += part;
        bytes.remove_prefix(part.size());
        if (token_.size() < token.size()) {
            return std::nullopt;
        }
        return control::equal_in_constant_time(token_, token);
    }

    void write(std::string frame) {
        outgoing_.push_back(std::move(frame));
        if (outgoing_.size() == 1) {
            write_next();
        }
    }

    /// Refuses the connection with a last message: nothing more is read, and it is closed once all
    /// is sent. Then `done` is called.
    void write_last(std::string frame, std::function<void()> done) {
        when_sent_ = std::move(done);
        write(std::move(frame));
    }

    void close() {
        Code ignored;
        deadline.cancel();
        caller.socket.close(ignored);
    }

private:
    /// A write error also fails the pending read, which handles it.
    void write_next() {
        boost::asio::async_write(
            caller.socket, boost::asio::buffer(outgoing_.front()),
            [self = shared_from_this()](const Code& error, std::size_t) { self->sent(error); });
    }

    void sent(const Code& error) {
        if (!caller.socket.is_open()) {
            return;
        }
        outgoing_.pop_front();
        if (error && !when_sent_) {
            return;
        }
        if (!outgoing_.empty()) {
            write_next();
        } else if (when_sent_) {
            close();
            when_sent_();
        }
    }

    std::string token_;
    std::array<char, 16384> received_{};
    std::deque<std::string> outgoing_;
    std::function<void()> when_sent_; ///< set: close once `outgoing_` is sent
};

} // namespace rtrain::launch
