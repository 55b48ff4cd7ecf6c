// SPDX-License-Identifier: Apache-2.0
/// @file
/// OutputTee: calls a function with each line that this process writes to standard output and
/// standard error. The output still goes to its previous destination, through a pipe and a thread.
/// Before the process ends, also by a crash, the pipes are flushed.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/process/stdio/tee_thread.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace rtrain::process {

/// At most one exists at a time.
class OutputTee {
public:
    /// `hear` is called in a thread of the tee, line by line, until the destructor returns. Throws
    /// std::system_error if the process has no such streams, or too many open files.
    explicit OutputTee(TeeThread::Hear hear) {
        std::array<Descriptor, 2> ends;
        std::array<TeeStream, 2> streams;
        for (std::size_t i = 0; i < streams.size(); ++i) {
            int pipe[2];
            streams[i].before = copy_of(static_cast<OutputStream>(i));
            if (streams[i].before.get() < 0 || ::pipe2(pipe, O_CLOEXEC) != 0) {
                throw std::system_error(errno, std::generic_category(), "standard output");
            }
            streams[i].pipe = Descriptor(pipe[0]);
            ends[i] = Descriptor(pipe[1]);
            ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
        }
        thread_ = std::make_shared<TeeThread>(std::move(streams), std::move(hear));
        {
            const launch::SignalsBlocked blocked;
            std::thread([thread = thread_] { thread->run(); }).detach();
        }
        flush_each_line();
        for (std::size_t i = 0; i < ends.size(); ++i) {
            ::dup2(ends[i].get(), numbers[i]);
        }
        current.store(this);
        for (std::size_t i = 0; i < crashes.size(); ++i) {
            struct sigaction action {};
            action.sa_sigaction = crashed;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigemptyset(&action.sa_mask);
            ::sigaction(crashes[i], &action, &before_[i]);
        }
    }
    OutputTee(const OutputTee&) = delete;
    OutputTee& operator=(const OutputTee&) = delete;
    ~OutputTee() {
        if (!owner_.is_this_process()) {
            return;
        }
        for (std::size_t i = 0; i < crashes.size(); ++i) {
            struct sigaction now {};
            ::sigaction(crashes[i], nullptr, &now);
            if (now.sa_sigaction == crashed) { // otherwise a later handler is installed
                ::sigaction(crashes[i], &before_[i], nullptr);
            }
        }
        restore();
        thread_->forget();
    }

    /// A copy of the descriptor that a stream goes to now.
    [[nodiscard]] static Descriptor copy_of(OutputStream stream) noexcept {
        constexpr int first_free = 3;
        return Descriptor(
            ::fcntl(numbers[static_cast<std::size_t>(stream)], F_DUPFD_CLOEXEC, first_free));
    }

    /// From now on, standard output is flushed at each line end, so that a crash loses no lines.
    static void flush_each_line() noexcept {
        std::fflush(stdout);
        // Without a buffer of ours, a stream with earlier output would hold some back.
        std::setvbuf(stdout, buffer.data(), _IOLBF, buffer.size());
    }

    /// Returns after everything written so far was passed to the function.
    void settle() noexcept {
        std::fflush(stdout);
        thread_->settle();
    }

    /// Call before ending the process without exit(): the same for the current tee. Safe in a
    /// signal handler.
    static void settle_current() noexcept {
        OutputTee* const tee = current.load();
        if (tee != nullptr && tee->owner_.is_this_process()) { // else the thread is missing here
            tee->thread_->settle();
        }
    }

private:
    static constexpr std::array numbers{STDOUT_FILENO, STDERR_FILENO};
    static constexpr std::array crashes{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    static inline std::atomic<OutputTee*> current{nullptr};
    static inline std::array<char, BUFSIZ> buffer{}; ///< of stdout

    void restore() noexcept {
        std::fflush(stdout);
        current.store(nullptr);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            ::dup2(thread_->stream(static_cast<OutputStream>(i)).before.get(), numbers[i]);
        }
        thread_->settle();
    }

    /// exit() was called while the tee exists.
    static void restore_current() noexcept {
        OutputTee* const tee = current.load();
        if (tee != nullptr && tee->owner_.is_this_process()) {
            tee->restore();
        }
    }
    /// Registered first, so it runs after all other exit handlers.
    static inline const int at_exit = std::atexit([] { restore_current(); });

    /// Then calls the previous handler, such as that of an MPI that prints the stack.
    static void crashed(int signal, siginfo_t* info, void* context) noexcept {
        settle_current();
        const OutputTee* const tee = current.load();
        std::size_t which = 0;
        while (which + 1 < crashes.size() && crashes[which] != signal) {
            ++which;
        }
        const struct sigaction* const before = tee != nullptr ? &tee->before_[which] : nullptr;
        if (before == nullptr || before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN) {
            ::signal(signal, SIG_DFL);
            ::raise(signal); // when this returns
            return;
        }
        if ((before->sa_flags & SA_SIGINFO) != 0) {
            before->sa_sigaction(signal, info, context);
        } else {
            before->sa_handler(signal);
        }
        settle_current();
    }

    Owner owner_;
    std::shared_ptr<TeeThread> thread_;
    std::array<struct sigaction, crashes.size()> before_{};
};

} // namespace rtrain::process
