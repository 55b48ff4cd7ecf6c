// SPDX-License-Identifier: Apache-2.0
/// @file
/// Watches collectives on a GPU's stream. A host that waits for the GPU, in `loss.item()` or any
/// other synchronisation, cannot check for failures. When a peer never joins, this thread notices
/// and aborts the communicator, the stream continues, and the host's next call throws. Reasons for
/// a thread, and what it may call: docs/decisions/0010-nccl-backend.md.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/nccl/cuda.hpp>
#include <rtrain/comm/nccl/nccl.hpp>
#include <rtrain/comm/world/backoff.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::comm {

class NcclWatchdog {
public:
    using Clock = Backoff::Clock;
    /// Throws PeerError if another rank has failed or left; must not block. Called with the name of
    /// the collective that waits.
    using LookAtPeers = std::function<void(const char*)>;

    struct Options {
        int rank;
        std::chrono::milliseconds timeout;
        LookAtPeers look_at_peers;
    };

    NcclWatchdog(NcclCommunicator& communicator, at::Device device, Options options)
        : communicator_(communicator), device_(device), rank_(options.rank),
          timeout_(options.timeout), look_at_peers_(std::move(options.look_at_peers)),
          thread_([this] { run(); }) {}
    NcclWatchdog(const NcclWatchdog&) = delete;
    NcclWatchdog& operator=(const NcclWatchdog&) = delete;
    ~NcclWatchdog() { stop(); }

    /// A collective begins; one at a time.
    void begin(const char* what) {
        const std::scoped_lock lock(mutex_);
        pending_.push_back({what, Clock::now(), nullptr});
    }
    /// It is on its stream, which records `done` after it.
    void issued(std::shared_ptr<const c10::Event> done) {
        const std::scoped_lock lock(mutex_);
        if (!pending_.empty()) {
            pending_.back().done = std::move(done);
        }
    }
    /// NCCL has rejected it. Peers get a moment to report a better reason.
    void refused(const std::string& text) {
        const std::scoped_lock lock(mutex_);
        suspect(text);
    }

    /// True if an error is known that check() does not throw yet.
    [[nodiscard]] bool suspicious() const {
        const std::scoped_lock lock(mutex_);
        return suspicion_.has_value();
    }

    /// Throws the error that was noticed, if any; cheap.
    void check() const {
        if (failed_.load(std::memory_order_acquire)) {
            std::rethrow_exception(error_);
        }
    }
    [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

    /// Forgets collectives that have ended; true if all have.
    [[nodiscard]] bool reap() {
        const std::scoped_lock lock(mutex_);
        forget_ended();
        return pending_.empty();
    }

    /// Ends the thread; from then on check() throws.
    void stop() {
        {
            const std::scoped_lock lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        if (thread_.joinable()) {
            thread_.join();
        }
        fail(std::make_exception_ptr(
            CommError("RT-N9", "the run has ended, and its communicator with it; a handle of "
                               "prepare() works within the training function that called it")));
    }

private:
    struct Pending {
        const char* what;
        Clock::time_point since;
        std::shared_ptr<const c10::Event> done; ///< empty until issued
    };

    void run() {
        // Otherwise destroying an event would create a context on the first device.
        c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
        relax_stream_capture();
        std::unique_lock lock(mutex_);
        while (!stopping_ && !failed()) {
            wake_.wait_for(lock, period);
            try {
                look(lock);
            } catch (const std::exception&) {
                fail(std::current_exception());
                if (lock.owns_lock()) { // abort() may take long: not waited for here
                    lock.unlock();
                }
                communicator_.abort();
                lock.lock();
            }
        }
    }

    /// Throws the error that must end the collective in flight.
    void look(std::unique_lock<std::mutex>& lock) {
        forget_ended();
        const ncclResult_t state = communicator_.state();
        if (state != ncclSuccess && state != ncclInProgress && !suspicion_) {
            suspect("NCCL reports " + communicator_.describe(state));
        }
        if (pending_.empty() && !suspicion_) {
            return;
        }
        const Pending oldest =
            pending_.empty() ? Pending{"no collective", Clock::now(), nullptr} : pending_.front();
        const auto waited = Clock::now() - oldest.since;
        if (waited > patience_before_looking || suspicion_) {
            lock.unlock(); // the training thread must not wait for MPI here
            look_at_peers_(oldest.what);
            lock.lock();
        }
        if (suspicion_ && Clock::now() - suspected_ > grace) {
            throw_for_good(CommError(
                "RT-N5", detail::concat("rank ", rank_, " in ", oldest.what, ": ", *suspicion_)));
        }
        if (std::chrono::duration<double>(waited) > timeout_) { // any number
            throw_for_good(CommError(
                "RT-N6",
                detail::concat(
                    "rank ", rank_, " waited ",
                    std::chrono::duration_cast<std::chrono::seconds>(waited).count(), " s in ",
                    oldest.what, " over NCCL",
                    oldest.done ? "" : ", which was not on its stream yet",
                    ": some rank has not called it, or hangs; raise Nccl::Options::timeout "
                    "if ranks may be that far apart")));
        }
    }

    void forget_ended() {
        while (!pending_.empty() && pending_.front().done && pending_.front().done->query()) {
            pending_.pop_front();
        }
    }

    void suspect(const std::string& text) {
        if (!suspicion_) {
            suspicion_ = text;
            suspected_ = Clock::now();
        }
    }

    void fail(std::exception_ptr error) {
        if (!failed()) {
            error_ = std::move(error);
            failed_.store(true, std::memory_order_release);
        }
    }

    static constexpr std::chrono::milliseconds period{50};
    /// Ranks are this far apart in ordinary steps.
    static constexpr std::chrono::milliseconds patience_before_looking{200};
    /// For the announcement of a peer whose end NCCL noticed first.
    static constexpr std::chrono::seconds grace{1};

    NcclCommunicator& communicator_;
    at::Device device_;
    int rank_;
    std::chrono::milliseconds timeout_;
    LookAtPeers look_at_peers_;

    mutable std::mutex mutex_; ///< guards the members below except error_, which failed_ publishes
    std::condition_variable wake_;
    bool stopping_ = false;
    std::deque<Pending> pending_; ///< in the order of their stream
    std::optional<std::string> suspicion_;
    Clock::time_point suspected_;
    std::atomic<bool> failed_{false};
    std::exception_ptr error_;
    rtrain::process::Thread thread_; ///< last: it uses everything above
};

} // namespace rtrain::comm
