// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on a GPU's tensors. All of them run in order on one side stream, synchronized with
/// the current stream in both directions: the host never waits.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/device/stream_order.hpp>
#include <rtrain/comm/nccl/calls.hpp>
#include <rtrain/comm/nccl/nccl.hpp>
#include <rtrain/comm/nccl/watchdog.hpp>
#include <rtrain/comm/world/backoff.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// The ranks of one communicator. "Blocking" collectives block the current stream, not the host.
/// Any thread may call them: one is on the stream before the next begins. Ranks must issue them in
/// the same order.
/// Any member that communicates throws the error that the watchdog has noticed: PeerError when
/// another rank has failed (RT-X1) or left (RT-X4), CommError for NCCL's errors (RT-N5) and after
/// `timeout` (RT-N6).
class NcclCollectives {
public:
    NcclCollectives(std::unique_ptr<NcclCommunicator> communicator, at::Device device, int size,
                    NcclWatchdog::Options watchdog)
        : device_(device), size_(size), streams_(device.type()),
          stream_(streams_.getStreamFromGlobalPool(device)), communicator_(std::move(communicator)),
          watchdog_(*communicator_, device, std::move(watchdog)) {}

    /// Reduces `tensor` in place, with any strides.
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        require_here(tensor);
        const at::Tensor buffer = tensor.contiguous();
        run(nccl_all_reduce(buffer, op));
        put_back(buffer, tensor);
    }

    /// Overwrites `tensor` with that of `root`; any type.
    void broadcast(at::Tensor& tensor, int root) {
        require_here(tensor);
        const at::Tensor buffer = tensor.contiguous();
        run(nccl_broadcast(buffer, root));
        put_back(buffer, tensor);
    }

    /// Returns the tensors of all ranks, stacked: shape (size, *tensor.sizes()); any type.
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        require_here(tensor);
        const at::Tensor mine = tensor.contiguous();
        std::vector<std::int64_t> shape = mine.sizes().vec();
        shape.insert(shape.begin(), size_);
        at::Tensor gathered = at::empty(shape, mine.options());
        run(nccl_all_gather(mine, gathered));
        return gathered;
    }

    /// Reduces a tensor of shape (size, ...) and returns this rank's row of the result.
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
        require_here(tensor);
        const at::Tensor rows = tensor.contiguous();
        at::Tensor row = at::empty(rows.sizes().slice(1), rows.options());
        run(nccl_reduce_scatter(rows, row, op));
        return row;
    }

    /// Enqueues a collective on the side stream, after the work enqueued on the current stream so
    /// far. The event marks its end; null for a call without elements.
    [[nodiscard]] std::shared_ptr<const c10::Event> issue(const NcclCall& call) {
        watchdog_.check();
        if (!call.enqueue) {
            return nullptr;
        }
        const c10::DeviceGuard guard(device_);
        const std::scoped_lock lock(issuing_);
        order_streams(streams_.getStream(device_), stream_);
        auto* const stream = static_cast<cudaStream_t>(stream_.native_handle());
        if (!recording_) {
            watchdog_.begin(call.name);
        }
        const ncclResult_t result =
            communicator_->enqueue([&](ncclComm_t comm) { return call.enqueue(comm, stream); });
        if (result != ncclSuccess && result != ncclInProgress) {
            watchdog_.refused(
                detail::concat(call.name, " failed: ", communicator_->describe(result)));
        }
        settle(result == ncclSuccess);
        auto done = std::make_shared<c10::Event>(device_.type());
        done->record(stream_);
        if (!recording_) {
            watchdog_.issued(done);
        }
        return done;
    }

    /// While it exists, collectives become part of a graph and are not watched: their events belong
    /// to the graph. `collectives` may be null.
    class Recording {
    public:
        explicit Recording(NcclCollectives* collectives) : collectives_(collectives) { set(true); }
        Recording(const Recording&) = delete;
        Recording& operator=(const Recording&) = delete;
        ~Recording() { set(false); }

    private:
        void set(bool recording) {
            if (collectives_ != nullptr) {
                collectives_->recording_ = recording;
            }
        }
        NcclCollectives* collectives_;
    };

    /// The work now on `stream` contains collectives; watches it under the name `what`.
    void watch(const char* what, const c10::Stream& stream) {
        const std::scoped_lock lock(issuing_);
        watchdog_.begin(what);
        auto done = std::make_shared<c10::Event>(device_.type());
        done->record(stream);
        watchdog_.issued(std::move(done));
    }

    /// Throws ModelError [RT-M70].
    void require_not_recording() const {
        if (recording_) {
            throw ModelError("RT-M70", "the step cannot be captured: it communicates on the CPU, "
                                       "as for a report, an evaluation or unused parameters, but a "
                                       "graph contains only device work; do that outside the step");
        }
    }

    /// Work enqueued on the current stream from now on runs after `done`.
    void join(const c10::Event& done) const { done.block(streams_.getStream(device_)); }

    /// The tensor's memory is not reused while the side stream may access it.
    void keep(const at::Tensor& tensor) const {
        streams_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
    }

    /// Throws CommError [RT-N7] for a tensor that is not on this rank's device.
    void require_here(const at::Tensor& tensor) const {
        if (!tensor.defined() || tensor.device() != device_) {
            throw CommError("RT-N7",
                            detail::concat("this rank communicates tensors on the CPU and on ",
                                           device_.str(), ", but the tensor is ",
                                           tensor.defined() ? "on " + tensor.device().str()
                                                            : std::string("undefined"),
                                           "; move it with tensor.to(worker.device())"));
        }
    }

    /// Throws the error that was noticed, if any; cheap.
    void check() const { watchdog_.check(); }

    /// Waits until the side stream is empty, then throws the error that was noticed, if any.
    void drain() {
        Backoff backoff;
        while (!watchdog_.failed() && !watchdog_.reap()) {
            backoff.pause();
        }
        check();
    }

    /// Ends communication; collective if `orderly`, after drain() on all ranks.
    void close(bool orderly) {
        watchdog_.stop();
        if (orderly) {
            communicator_->close(closing);
        } else {
            communicator_->abort();
        }
    }

private:
    static constexpr std::chrono::seconds closing{10};

    void run(const NcclCall& call) {
        if (const auto done = issue(call)) {
            join(*done);
        }
    }

    /// Waits until NCCL has enqueued the work on the stream; at first it may have to connect.
    void settle(bool success) {
        Backoff backoff;
        while (!success) {
            watchdog_.check();
            success = communicator_->state() == ncclSuccess && !watchdog_.suspicious();
            if (!success) {
                backoff.pause();
            }
        }
    }

    static void put_back(const at::Tensor& buffer, at::Tensor& tensor) {
        if (!buffer.is_same(tensor)) {
            tensor.copy_(buffer);
        }
    }

    at::Device device_;
    int size_;
    c10::impl::VirtualGuardImpl streams_;
    c10::Stream stream_;
    std::unique_ptr<NcclCommunicator> communicator_;
    NcclWatchdog watchdog_;
    std::mutex issuing_; ///< held until a collective is on its stream
    bool recording_ = false;
};

/// A repeatable collective. wait() makes the current stream wait for it; the host continues.
class NcclHandle {
public:
    NcclHandle(std::shared_ptr<NcclCollectives> collectives, NcclCall call)
        : collectives_(std::move(collectives)), call_(std::move(call)) {
        for (const at::Tensor& tensor : call_.tensors) {
            collectives_->require_here(tensor);
        }
    }

    /// Runs after the work enqueued on the current stream so far. The tensors must not be accessed
    /// until the current stream has reached wait().
    void start() {
        collectives_->check();
        for (const at::Tensor& tensor : call_.tensors) {
            collectives_->keep(tensor);
        }
        done_ = collectives_->issue(call_);
    }
    void poll() { collectives_->check(); }
    void wait() {
        collectives_->check();
        if (done_) {
            collectives_->join(*done_);
        }
    }

private:
    std::shared_ptr<NcclCollectives> collectives_;
    NcclCall call_;
    std::shared_ptr<const c10::Event> done_;
};

} // namespace rtrain::comm
