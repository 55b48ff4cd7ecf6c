// SPDX-License-Identifier: Apache-2.0
/// @file
/// A CUDA device and an NCCL that exist in host memory only, to run backend::Nccl's host code where
/// there is no GPU. fake_cuda.cpp makes libtorch believe in the devices: its streams are threads
/// that work off a queue, so a missing wait between streams shows. fake_nccl.cpp connects processes
/// of one machine through shared memory. What they cannot show: speed, overlap, and whether the
/// real libraries behave like this.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace fake {

/// Before enqueue() of a task that writes there: recording a graph leaves memory as it was.
void writes(void* data, std::size_t bytes);
/// Appends to a stream's queue; `stream` is a cudaStream_t.
void enqueue(void* stream, std::function<void()> task);

/// What the fake NCCL of this process does wrong from now on.
struct Faults {
    bool never_connects = false; ///< initialisation stays in progress
    int refuses = 0;             ///< an ncclResult_t that the next collective returns
    int breaks = 0;              ///< an ncclResult_t that ncclCommGetAsyncError reports
    int version = 0;             ///< that ncclGetVersion returns; 0: the headers'
    int connects_slowly = 0;     ///< looks at the state until a collective is on its stream
    /// ncclCommAbort returns once this is set, or after 20 s.
    std::shared_ptr<std::atomic<bool>> abort_may_return{};
};
Faults& faults();

/// A CUDA call throws once after `after` that succeed; nullptr: none. Calls: cudaEventQuery,
/// cudaEventRecord, cudaLaunchKernel, cudaMalloc, cudaStreamWaitEvent.
void fail(const char* call, int after);
/// For the fake itself: where `call` is made.
void fail_if_told(const char* call);

/// Tasks of all streams begin after pauses that `seed` draws; 0: at once.
void shuffle(unsigned seed);
/// Each task of the stream begins this much later from now on.
void slow_down(const c10::Stream& stream, std::chrono::microseconds pause);
/// Streams that were taken from the pool so far, of all devices.
int streams();

/// NCCL_HOSTID when the last communicator was made; empty if not set.
std::string host_id();

/// Threads whose calls do not invalidate a graph that is captured.
int relaxed_threads();

/// How often the host has waited for a device so far: for a stream, an event, or a value.
int host_waits();

/// Calls of ncclCommAbort, and of ncclCommDestroy, so far.
int aborted();
int destroyed();

} // namespace fake
