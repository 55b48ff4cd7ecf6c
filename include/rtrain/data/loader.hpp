// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads ahead of a loop, on threads, and returns results in order.
///
/// Threads, not processes: they share the data set, need no shared memory, and end with the loop.
#pragma once

#include <rtrain/process/os/thread.hpp>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <dlfcn.h>

namespace rtrain::data {

/// Limits the calling thread to itself. Otherwise each reading thread would start as many intra-op
/// threads as training has. Calls OpenMP, if libtorch is built on it, because at::set_num_threads()
/// affects all threads.
inline void compute_alone() {
    at::internal::lazy_init_num_threads(); // its first use would reset the number
    if (void* const symbol = ::dlsym(RTLD_DEFAULT, "omp_set_num_threads")) {
        reinterpret_cast<void (*)(int)>(symbol)(1);
    }
}

/// Reads `T`s in jobs, each on one of the threads.
template <class T>
class Loader {
public:
    using Job = std::function<T()>;
    using Clock = std::chrono::steady_clock;

    /// `threads` is at least 1; up to `ahead`, at least 1, jobs are running or done in advance. A
    /// thread without a job calls `otherwise`, which must not throw, as long as it returns true,
    /// and again after each job. `waited` receives the idle times of threads.
    Loader(int threads, std::size_t ahead, std::function<bool()> otherwise = nullptr,
           std::function<void(Clock::duration)> waited = nullptr)
        : ahead_(ahead), otherwise_(std::move(otherwise)), waited_(std::move(waited)) {
        try {
            for (int i = 0; i < threads; ++i) {
                threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
            }
        } catch (const LaunchError&) { // fewer threads suffice
            if (threads_.empty()) {
                throw;
            }
        }
    }
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    /// Waits for running jobs; others never begin.
    ~Loader() {
        if (!threads_.front().joinable()) { // forked: no such threads here
            static_cast<void>(wake_.release());
            return;
        }
        for (auto& thread : threads_) {
            thread.request_stop();
        }
    }

    /// The result of the next job, in the order of `next_job()`, which is called here; empty when
    /// that has returned nothing and all results are returned. Rethrows the error of a job, after
    /// the results before it.
    template <class NextJob>
    [[nodiscard]] std::optional<T> next(NextJob&& next_job) {
        while (!is_at_end_ && reads_.size() < ahead_) {
            if (std::optional<Job> job = next_job()) {
                reads_.push_back(std::make_shared<Read>(std::move(*job)));
                const std::scoped_lock lock(mutex_);
                waiting_.push_back(reads_.back());
                wake_->has_work.notify_one();
            } else {
                is_at_end_ = true;
            }
        }
        if (reads_.empty()) {
            return std::nullopt;
        }
        const std::shared_ptr<Read> first = std::move(reads_.front());
        reads_.pop_front();
        std::unique_lock lock(mutex_);
        wake_->is_read.wait(lock, [&] { return first->is_over; });
        if (first->error) {
            std::rethrow_exception(std::exchange(first->error, nullptr));
        }
        return std::move(first->result);
    }

private:
    struct Read {
        explicit Read(Job given) : job(std::move(given)) {}
        Job job;
        std::optional<T> result;
        std::exception_ptr error;
        bool is_over = false;
    };

    void work(const std::stop_token& stop) {
        const c10::AutoGradMode no_gradients(false);
        compute_alone();
        std::unique_lock lock(mutex_);
        while (!stop.stop_requested()) {
            if (!waiting_.empty()) {
                do_first(lock);
            } else if (!do_something_else(lock)) {
                const Clock::time_point begin = Clock::now();
                wake_->has_work.wait(lock, stop, [this] { return !waiting_.empty(); });
                if (waited_) {
                    waited_(Clock::now() - begin);
                }
            }
        }
    }

    void do_first(std::unique_lock<std::mutex>& lock) {
        const std::shared_ptr<Read> read = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        try {
            read->result = std::exchange(read->job, nullptr)();
        } catch (...) {
            read->error = std::current_exception();
        }
        lock.lock();
        read->is_over = true;
        wake_->is_read.notify_one();
    }

    [[nodiscard]] bool do_something_else(std::unique_lock<std::mutex>& lock) {
        if (!otherwise_) {
            return false;
        }
        lock.unlock();
        const bool has_done = otherwise_();
        lock.lock();
        return has_done;
    }

    std::size_t ahead_;
    std::function<bool()> otherwise_;             ///< may be null
    std::function<void(Clock::duration)> waited_; ///< may be null
    std::deque<std::shared_ptr<Read>> reads_; ///< not returned yet; used by the loop's thread only
    bool is_at_end_ = false;

    std::mutex mutex_; ///< guards all below, and the contents of each Read
    struct Wake {
        std::condition_variable_any has_work;
        std::condition_variable is_read;
    };
    std::unique_ptr<Wake> wake_ = std::make_unique<Wake>();
    std::deque<std::shared_ptr<Read>> waiting_;
    std::vector<rtrain::process::Thread> threads_; ///< last: they use the others
};

} // namespace rtrain::data
