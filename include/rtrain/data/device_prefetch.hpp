// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prefetches batches to a device: the next one is copied from pinned memory on a separate stream
/// during training on the current one. On the CPU, nothing is done. Uses c10's generic devices, so
/// it needs no CUDA headers.
#pragma once

#include <rtrain/data/batch/each_tensor.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace rtrain::data {

/// The stream that copies batches to a device, the same for all passes: CUDA's pool has 32, which
/// collectives share.
[[nodiscard]] inline c10::Stream copy_stream(at::Device device) {
    static std::mutex mutex;
    static std::map<at::DeviceIndex, c10::Stream> streams;
    const std::scoped_lock lock(mutex);
    const auto found = streams.find(device.index());
    if (found != streams.end()) {
        return found->second;
    }
    const c10::impl::VirtualGuardImpl implementation(device.type());
    return streams.emplace(device.index(), implementation.getStreamFromGlobalPool(device))
        .first->second;
}

/// Stays one batch ahead of its reader. Random numbers used in reading a batch are thus drawn one
/// batch early.
template <class T>
class DevicePrefetch {
public:
    using Clock = std::chrono::steady_clock;

    explicit DevicePrefetch(at::Device device) {
        if (!device.is_cpu()) {
            copies_.emplace(device);
        }
    }

    /// The next batch of `read()`, which returns std::optional<T>: unchanged on the CPU, else on
    /// the device, where the current stream waits for its copy.
    template <class Read>
    [[nodiscard]] std::optional<T> next(Read&& read) {
        if (!copies_) {
            return read();
        }
        if (!ahead_) {
            ahead_ = true;
            staged_ = read();
            timed([&] { copies_->begin(staged_); });
        }
        std::optional<T> batch = std::exchange(staged_, std::nullopt);
        if (batch) {
            timed([&] { copies_->hand_over(*batch); });
            staged_ = read();
            timed([&] { copies_->begin(staged_); });
        }
        return batch;
    }

    /// Drops the batch that is read ahead.
    void drop() noexcept {
        staged_.reset();
        ahead_ = false;
    }

    /// The time spent in next() so far, without reading; the copies themselves continue in the
    /// background.
    [[nodiscard]] Clock::duration busy() const noexcept { return busy_; }

private:
    class Copies {
    public:
        explicit Copies(at::Device device)
            : device_(device), implementation_(device.type()), stream_(copy_stream(indexed())),
              copied_(device.type()) {}

        /// Starts copying on the copy stream.
        void begin(std::optional<T>& batch) {
            if (!batch) {
                return;
            }
            const auto copy = [this](at::Tensor& tensor) {
                if (!tensor.defined()) {
                    return;
                }
                if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
                    tensor = tensor.to(device_); // the current stream may still be writing it
                    return;
                }
                const c10::StreamGuard guard(stream_);
                tensor = tensor.pin_memory().to(device_, /*non_blocking=*/true);
            };
            detail::each_tensor(*batch, copy);
            copied_.record(stream_);
        }

        /// Lets the current stream use the batch after its copy; its memory, owned by the copy
        /// stream, is not reused before that.
        void hand_over(T& batch) {
            const c10::Stream current = implementation_.getStream(indexed());
            copied_.block(current);
            const auto keep = [&](at::Tensor& tensor) {
                if (tensor.defined() && tensor.layout() == at::kStrided) {
                    implementation_.recordDataPtrOnStream(tensor.storage().data_ptr(), current);
                }
            };
            detail::each_tensor(batch, keep);
        }

    private:
        [[nodiscard]] at::Device indexed() const {
            return device_.has_index() ? device_ : implementation_.getDevice();
        }

        at::Device device_;
        c10::impl::VirtualGuardImpl implementation_;
        c10::Stream stream_;
        c10::Event copied_;
    };

    template <class Action>
    void timed(const Action& action) {
        const Clock::time_point begin = Clock::now();
        action();
        busy_ += Clock::now() - begin;
    }

    std::optional<Copies> copies_; ///< empty on the CPU
    std::optional<T> staged_;      ///< its copy has begun
    bool ahead_ = false;
    Clock::duration busy_{};
};

} // namespace rtrain::data
