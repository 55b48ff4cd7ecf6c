// SPDX-License-Identifier: Apache-2.0
/// @file
/// A CUDA graph that may contain collectives.
#pragma once

#include <rtrain/comm/device/device_graph.hpp>
#include <rtrain/comm/device/stream_order.hpp>
#include <rtrain/comm/nccl/collectives.hpp>

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#if __has_include(<ATen/accelerator/Graph.h>)
#include <ATen/accelerator/Graph.h>
#else // before libtorch 2.12
#include <ATen/cuda/CUDAGraph.h>
#endif

#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace rtrain::comm {

class NcclGraph final : public DeviceGraph {
public:
    /// `collectives` may be null if there is one rank.
    NcclGraph(at::Device device, std::shared_ptr<NcclCollectives> collectives)
        : device_(device), collectives_(std::move(collectives)), streams_(device.type()),
          stream_(streams_.getStreamFromGlobalPool(device)) {}

    void run(const std::function<void()>& work) override {
        const c10::Stream caller = streams_.getStream(device_);
        order_streams(caller, stream_);
        {
            const c10::StreamGuard guard(stream_);
            work();
        }
        order_streams(stream_, caller);
    }

    void record(const std::function<void()>& work) override {
        run([&] {
            streams_.synchronizeStream(stream_);
            graph_.capture_begin();
            std::exception_ptr error;
            try {
                const NcclCollectives::Recording recording(collectives_.get());
                work();
            } catch (...) {
                error = std::current_exception();
            }
            try {
                graph_.capture_end();
            } catch (...) { // the first error is the reason
                error = error ? error : std::current_exception();
            }
            if (error) {
                std::rethrow_exception(error);
            }
        });
    }

    void replay() override {
        run([this] {
            if (collectives_) {
                collectives_->check();
            }
            graph_.replay();
            if (collectives_) {
                collectives_->watch("a captured step", stream_);
            }
        });
    }

private:
#if __has_include(<ATen/accelerator/Graph.h>)
    using Graph = at::accelerator::Graph;
#else
    using Graph = at::cuda::CUDAGraph;
#endif

    at::Device device_;
    std::shared_ptr<NcclCollectives> collectives_;
    c10::impl::VirtualGuardImpl streams_;
    c10::Stream stream_;
    Graph graph_;
};

} // namespace rtrain::comm
