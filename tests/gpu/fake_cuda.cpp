// SPDX-License-Identifier: Apache-2.0
#include "fake.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr int most_devices = 8;
int device_count() {
    const char* const text = std::getenv("FAKE_GPUS");
    return text == nullptr ? 4 : std::atoi(text);
}

std::atomic<unsigned> shuffle_seed{0};

/// A thread that works off its queue.
class Stream {
public:
    explicit Stream(unsigned number) : random_(number), thread_([this] { run(); }) {
        thread_.detach();
    }

    /// Each task from now on begins this much later.
    void slow_down(std::chrono::microseconds pause) { pause_us_ = pause.count(); }

    void push(std::function<void()> task) {
        const std::scoped_lock lock(mutex_);
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }
    bool idle() {
        const std::scoped_lock lock(mutex_);
        return tasks_.empty();
    }
    void synchronize() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return tasks_.empty(); });
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return !tasks_.empty(); });
            auto task = std::move(tasks_.front()); // it leaves the queue when it is done
            lock.unlock();
            pause();
            task();
            task = nullptr; // what it holds may push, too
            lock.lock();
            tasks_.pop_front();
            changed_.notify_all();
        }
    }
    void pause() {
        std::int64_t microseconds = pause_us_;
        if (const unsigned seed = shuffle_seed; seed != 0) {
            const auto drawn = (static_cast<unsigned>(random_()) ^ seed) * 2654435761U >> 16U;
            microseconds += drawn % 4 == 0 ? drawn % 500 : 0;
        }
        if (microseconds > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
        }
    }

    std::atomic<std::int64_t> pause_us_{0};
    std::minstd_rand random_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::thread thread_;
};

/// Streams live as long as the process: number 0 is the default one of a device.
Stream& stream_of(c10::StreamId id, int device) {
    static std::mutex mutex;
    static auto* const streams = new std::array<std::vector<std::unique_ptr<Stream>>, most_devices>;
    const std::scoped_lock lock(mutex);
    auto& of_device = (*streams)[static_cast<std::size_t>(device)];
    while (of_device.size() <= static_cast<std::size_t>(id)) {
        of_device.push_back(std::make_unique<Stream>(static_cast<unsigned>(of_device.size()) + 1));
    }
    return *of_device[static_cast<std::size_t>(id)];
}

struct Event {
    std::shared_ptr<std::atomic<bool>> reached;
};

/// Which streams are to be waited for before a device's memory is used again.
class Memory {
public:
    void use(const void* data, c10::Stream stream) {
        const std::scoped_lock lock(mutex_);
        if (const auto found = streams_.find(data); found != streams_.end()) {
            found->second.push_back(stream);
        }
    }
    void allocated(const void* data, c10::Stream stream) { // that of a graph stays its own
        const std::scoped_lock lock(mutex_);
        streams_[data] = {stream};
    }
    /// The memory holds no numbers once its streams have come here: nobody may read it any more.
    void freed(const void* data, at::Tensor owner) {
        std::unique_lock lock(mutex_);
        const auto found = streams_.find(data);
        if (found == streams_.end()) {
            return;
        }
        const std::vector<c10::Stream> streams = std::move(found->second);
        streams_.erase(found);
        lock.unlock();
        auto missing = std::make_shared<std::atomic<std::size_t>>(streams.size());
        for (const c10::Stream& stream : streams) {
            stream_of(stream.id(), stream.device_index()).push([this, owner, missing] {
                if (--*missing == 0) {
                    reuse(owner);
                }
            });
        }
    }

private:
    void reuse(const at::Tensor& owner) {
        std::memset(owner.storage().mutable_data(), 0xff, owner.storage().nbytes());
        const std::scoped_lock lock(mutex_);
        quarantine_.push_back(owner); // a stream that was not waited for reads poison, no more
        quarantined_ += owner.storage().nbytes();
        while (quarantined_ > (std::size_t{64} << 20U)) {
            quarantined_ -= quarantine_.front().storage().nbytes();
            quarantine_.pop_front();
        }
    }

    std::mutex mutex_;
    std::map<const void*, std::vector<c10::Stream>> streams_; ///< the first is its own
    std::deque<at::Tensor> quarantine_;
    std::size_t quarantined_ = 0;
};
/// What a graph does, in the order in which the host has put it on streams.
struct Tape {
    std::atomic<bool> running{false};
    std::vector<std::function<void()>> tasks;
    std::vector<std::pair<at::Tensor, at::Tensor>> before; ///< memory that is written, its contents

    /// To be called before a task writes into memory: recording must leave that as it was.
    void writes(const at::Tensor& memory) { before.emplace_back(memory, memory.clone()); }
};
Tape& tape() {
    static auto* const tape = new Tape;
    return *tape;
}
void refuse_while_recording() {
    TORCH_CHECK(!tape().running, "CUDA error: operation not permitted when stream is capturing");
}

Memory& memory() {
    static auto* const memory = new Memory;
    return *memory;
}

std::atomic<int> waits_of_host{0};

/// Host memory that a device may copy from and to while the host continues.
class PinnedMemory final : public c10::Allocator {
public:
    c10::DataPtr allocate(std::size_t bytes) override {
        auto* const memory = new c10::DataPtr(c10::GetCPUAllocator()->allocate(bytes));
        const std::scoped_lock lock(mutex_);
        ends_[static_cast<const char*>(memory->get())] =
            static_cast<const char*>(memory->get()) + bytes;
        return {memory->get(), memory, &free, at::kCPU};
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
    bool holds(const void* data) {
        const auto* const at = static_cast<const char*>(data);
        const std::scoped_lock lock(mutex_);
        const auto after = ends_.upper_bound(at);
        return after != ends_.begin() && at < std::prev(after)->second;
    }
    static PinnedMemory& all() {
        static auto* const all = new PinnedMemory;
        return *all;
    }

private:
    static void free(void* context) {
        auto* const memory = static_cast<c10::DataPtr*>(context);
        {
            const std::scoped_lock lock(all().mutex_);
            all().ends_.erase(static_cast<const char*>(memory->get()));
        }
        delete memory;
    }

    std::mutex mutex_;
    std::map<const char*, const char*> ends_; ///< by begin
};

std::atomic<c10::StreamId> next_stream{1};
thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, most_devices> current_stream{};

struct Guard final : c10::impl::DeviceGuardImplInterface {
    static c10::Device cuda(c10::DeviceIndex index) { return {c10::DeviceType::CUDA, index}; }
    static std::size_t at(c10::Device device) {
        return static_cast<std::size_t>(device.has_index() ? device.index() : current_device);
    }
    c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
    c10::Device exchangeDevice(c10::Device device) const override {
        return cuda(std::exchange(current_device, device.index()));
    }
    c10::Device getDevice() const override { return cuda(current_device); }
    void setDevice(c10::Device device) const override {
        TORCH_CHECK(device.index() < device_count(), "invalid device ordinal");
        current_device = device.index();
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override {
        current_device = device.index();
    }
    c10::Stream getStream(c10::Device device) const override {
        const auto index = static_cast<c10::DeviceIndex>(at(device));
        return c10::Stream(c10::Stream::UNSAFE, cuda(index), current_stream[at(device)]);
    }
    c10::Stream getDefaultStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
        return c10::Stream(c10::Stream::UNSAFE, device, next_stream++);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const auto old = std::exchange(current_stream[at(stream.device())], stream.id());
        return c10::Stream(c10::Stream::UNSAFE, stream.device(), old);
    }
    void* getStreamNativeHandle(const c10::Stream stream) const override {
        return &stream_of(stream.id(), stream.device_index());
    }
    c10::DeviceIndex deviceCount() const noexcept override {
        return static_cast<c10::DeviceIndex>(device_count());
    }
    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*device*/,
                const c10::EventFlag /*flag*/) const override {
        fake::fail_if_told("cudaEventRecord");
        if (*event == nullptr) {
            *event = new Event;
        }
        auto reached = std::make_shared<std::atomic<bool>>(false);
        static_cast<Event*>(*event)->reached = reached;
        stream_of(stream.id(), stream.device_index()).push([reached] { *reached = true; });
    }
    void block(void* event, const c10::Stream& stream) const override {
        fake::fail_if_told("cudaStreamWaitEvent");
        if (event != nullptr) {
            stream_of(stream.id(), stream.device_index())
                .push([reached = static_cast<Event*>(event)->reached] {
                    while (!*reached) {
                        std::this_thread::sleep_for(std::chrono::microseconds(20));
                    }
                });
        }
    }
    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
        memory().use(data.get(), stream);
    }
    bool queryEvent(void* event) const override {
        fake::fail_if_told("cudaEventQuery");
        return event == nullptr || *static_cast<Event*>(event)->reached;
    }
    void synchronizeEvent(void* event) const override {
        ++waits_of_host;
        refuse_while_recording();
        while (!queryEvent(event)) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }
    void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
        delete static_cast<Event*>(event);
    }
    bool queryStream(const c10::Stream& stream) const override {
        return stream_of(stream.id(), stream.device_index()).idle();
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        ++waits_of_host;
        refuse_while_recording();
        wait_for(stream);
    }
    static void wait_for(const c10::Stream& stream) {
        stream_of(stream.id(), stream.device_index()).synchronize();
    }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

} // namespace

namespace at {

struct CUDAHooks : CUDAHooksInterface { // the name under which libtorch looks for them
    explicit CUDAHooks(CUDAHooksArgs /*args*/) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    Device getDeviceFromPtr(void* /*data*/) const override {
        return {at::kCUDA, current_device_index()};
    }
    const Generator& getDefaultGenerator(DeviceIndex /*device*/) const override {
        static const Generator generator = at::detail::createCPUGenerator();
        return generator;
    }
    DeviceIndex getCurrentDevice() const override { return current_device_index(); }
    bool isPinnedPtr(const void* data) const override { return PinnedMemory::all().holds(data); }
    bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }
    DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(::device_count()); }
    DeviceIndex current_device() const override { return current_device_index(); }
    int getNumGPUs() const override { return ::device_count(); }
    Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::all(); }
    static DeviceIndex current_device_index() { return ::current_device; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

} // namespace at

namespace {

/// The same memory in the other world, which lives as long as this one.
at::Tensor alias(const at::Tensor& tensor, c10::Device device) {
    void* const data = const_cast<void*>(tensor.const_data_ptr());
    const auto free = [tensor, data, device](void* /*data*/) {
        if (device.is_cuda()) {
            memory().freed(data, tensor);
        }
    };
    if (device.is_cuda() && data != nullptr && !tape().running) {
        fake::fail_if_told("cudaMalloc");
        memory().allocated(data, Guard().getStream(device));
    }
    return at::from_blob(data, tensor.sizes(), tensor.strides(), free,
                         tensor.options().device(device), device);
}

/// Whether the operation only fills tensors that are there, so that it may run on the stream: then
/// a missing wait between streams shows.
bool runs_later(const c10::OperatorHandle& op, const torch::jit::Stack& stack, std::size_t first) {
    static const std::set<std::string> names{
        "aten::copy_", "aten::mul",  "aten::mul_", "aten::add_",     "aten::zero_",
        "aten::fill_", "aten::div_", "aten::sub_", "aten::addcmul_", "aten::addcdiv_"};
    const std::string& name = op.schema().name();
    if (!names.contains(name) || op.schema().returns().size() != 1 ||
        op.schema().returns()[0].alias_info() == nullptr) {
        return false;
    }
    bool asynchronous = true;
    for (std::size_t i = first; i < stack.size(); ++i) {
        if (stack[i].isTensor() && stack[i].toTensor().defined()) {
            const at::Tensor& tensor = stack[i].toTensor();
            const bool scalar = tensor.device().is_cpu() && tensor.dim() == 0;
            asynchronous = asynchronous && (tensor.is_cuda() ? tensor.numel() > 0 : scalar);
        }
    }
    if (name == "aten::copy_") {
        const at::Tensor& to = stack[first].toTensor();
        const at::Tensor& from = stack[first + 1].toTensor();
        const bool non_blocking = stack[first + 2].toBool();
        asynchronous =
            to.numel() > 0 &&
            (!to.is_cuda() ? non_blocking && PinnedMemory::all().holds(to.storage().data())
                           : (from.is_cuda() ? from.device() == to.device() : non_blocking));
    }
    return asynchronous;
}

/// Where an operation runs: with its tensors, or else on the current device.
c10::Device device_of(const torch::jit::Stack& stack, std::size_t first) {
    for (std::size_t i = first; i < stack.size(); ++i) {
        if (stack[i].isTensor() && stack[i].toTensor().is_cuda()) {
            return stack[i].toTensor().device();
        }
        if (stack[i].isTensorList() && stack[i].toTensorVector().size() > 0 &&
            stack[i].toTensorVector()[0].is_cuda()) {
            return stack[i].toTensorVector()[0].device();
        }
    }
    return Guard::cuda(current_device);
}

/// Puts it on the current stream and leaves its result on the stack. Like a kernel, it does not
/// keep the device's memory.
void fill_later(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::size_t first) {
    at::Tensor filled;
    torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        c10::IValue& value = arguments[i];
        if (!value.isTensor() || !value.toTensor().defined()) {
            continue;
        }
        const at::Tensor tensor = value.toTensor();
        const auto* const info = op.schema().arguments()[i].alias_info();
        if (info != nullptr && info->isWrite()) {
            filled = tensor;
        }
        if (tensor.is_cuda()) {
            value = at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(),
                                  tensor.strides(), tensor.options().device(at::kCPU));
        }
    }
    if (filled.is_cpu() && filled.is_contiguous() && !tape().running) {
        std::memset(filled.mutable_data_ptr(), 0xff, filled.nbytes()); // until it is copied
    }
    const auto fill = [op, arguments] {
        const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
        torch::jit::Stack values = arguments;
        op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &values);
    };
    const Guard guard;
    const c10::Stream stream = guard.getStream(device_of(stack, first));
    if (tape().running) {
        guard.wait_for(stream);
        tape().writes(at::from_blob(const_cast<void*>(filled.const_data_ptr()), filled.sizes(),
                                    filled.strides(), filled.options().device(at::kCPU)));
        tape().tasks.emplace_back([fill, kept = stack] { fill(); });
    }
    stream_of(stream.id(), stream.device_index()).push(fill);
    stack.resize(first);
    stack.emplace_back(filled);
}

/// Whether the host waits for values: CUDA cannot record that.
bool host_waits_for(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                    std::size_t first) {
    const std::string& name = op.schema().name();
    return name == "aten::_local_scalar_dense" || name == "aten::nonzero" ||
           name == "aten::equal" || (name == "aten::copy_" && !stack[first].toTensor().is_cuda());
}

/// As at first, into the memory that its results had then.
void run_again(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
               const torch::jit::Stack& results) {
    torch::jit::Stack values = arguments;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &values);
    const auto put = [](const at::Tensor& to, const at::Tensor& from) {
        if (to.defined() && from.defined() && to.const_data_ptr() != from.const_data_ptr()) {
            at::Tensor(to).copy_(from);
        }
    };
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].isTensor()) {
            put(results[i].toTensor(), values[i].toTensor());
        } else if (results[i].isTensorList()) {
            const auto to = results[i].toTensorVector();
            const auto from = values[i].toTensorVector();
            for (std::size_t j = 0; j < to.size(); ++j) {
                put(to[j], from[j]);
            }
        }
    }
}

/// Runs any operation by the CPU's kernel on the same memory, after the current stream.
void on_host(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
             torch::jit::Stack* stack) {
    Guard guard;
    c10::Device device = Guard::cuda(current_device);
    const std::size_t count = op.schema().arguments().size();
    const std::size_t first = stack->size() - count;
    fake::fail_if_told("cudaLaunchKernel");
    if (runs_later(op, *stack, first)) {
        fill_later(op, *stack, first);
        return;
    }
    if (host_waits_for(op, *stack, first)) {
        ++waits_of_host;
        refuse_while_recording();
    }
    guard.wait_for(guard.getStream(device_of(*stack, first)));
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs; // ours, the CPU's
    const auto to_host = [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_cuda()) {
            return tensor;
        }
        device = tensor.device();
        for (const auto& [ours, hosts] : pairs) {
            if (ours.is_same(tensor)) {
                return hosts;
            }
        }
        pairs.emplace_back(tensor, alias(tensor, at::kCPU));
        return pairs.back().second;
    };
    for (std::size_t i = first; i < stack->size(); ++i) {
        c10::IValue& value = (*stack)[i];
        if (value.isTensor()) {
            value = to_host(value.toTensor());
        } else if (value.isTensorList()) {
            std::vector<at::Tensor> tensors;
            for (const at::Tensor& tensor : value.toTensorVector()) {
                tensors.push_back(to_host(tensor));
            }
            value = tensors;
        } else if (value.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> tensors;
            for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
                tensors.push_back(tensor ? std::optional(to_host(*tensor)) : std::nullopt);
            }
            value = tensors;
        } else if (value.isDevice() && value.toDevice().is_cuda()) {
            device = value.toDevice().has_index() ? value.toDevice() : device;
            value = c10::Device(at::kCPU);
        }
    }
    const torch::jit::Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first),
                                      stack->end());
    if (tape().running) {
        for (const auto& [ours, hosts] : pairs) {
            tape().writes(hosts);
        }
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    if (tape().running && !op.schema().name().starts_with("aten::empty")) {
        tape().tasks.emplace_back(
            [op, arguments, results = torch::jit::Stack(*stack), first, pairs]() mutable {
                run_again(op, arguments,
                          {results.begin() + static_cast<std::ptrdiff_t>(first), results.end()});
            });
    }
    const auto from_host = [&](const at::Tensor& tensor) {
        if (!tensor.defined()) {
            return tensor;
        }
        for (const auto& [ours, hosts] : pairs) {
            if (hosts.is_same(tensor)) {
                return ours;
            }
        }
        return alias(tensor, device);
    };
    for (auto& [ours, hosts] : pairs) { // resized
        if (ours.sizes() != hosts.sizes()) {
            const at::Tensor grown = alias(hosts, ours.device());
            ours.unsafeGetTensorImpl()->set_storage_keep_dtype(grown.storage());
            ours.unsafeGetTensorImpl()->set_sizes_and_strides(grown.sizes(), grown.strides());
        }
    }
    // A result on the CPU stays there only where it was asked for: copies into the CPU's tensors.
    const std::size_t results = op.schema().returns().size();
    for (std::size_t i = stack->size() - results; i < stack->size(); ++i) {
        c10::IValue& value = (*stack)[i];
        const bool into_host = op.schema().name() == "aten::copy_" && pairs.size() == 1 &&
                               value.isTensor() && !value.toTensor().is_same(pairs[0].second);
        if (value.isTensor() && !into_host) {
            value = from_host(value.toTensor());
        } else if (value.isTensorList()) {
            std::vector<at::Tensor> tensors;
            for (const at::Tensor& tensor : value.toTensorVector()) {
                tensors.push_back(from_host(tensor));
            }
            value = tensors;
        }
    }
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) { // those whose generic version looks for a CUDA kernel
    for (const char* const name : {"copy_", "_local_scalar_dense"}) {
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_host>());
    }
    // Views share their tensor's storage, as on a real device.
    library.impl("as_strided", at::native::as_strided_tensorimpl);
    library.impl("view", at::native::view);
    library.impl("_reshape_alias", at::native::_reshape_alias);
    library.impl("unfold", at::native::unfold);
}

} // namespace

namespace {

struct FakeGraph final : at::GraphImplInterface {
    explicit FakeGraph(const at::GraphImplArgs& /*args*/) {}
    void capture_begin(at::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override {
        tape().running = true;
    }
    void capture_end() override {
        for (c10::StreamId id = 0; id < next_stream; ++id) {
            stream_of(id, current_device).synchronize();
        }
        tape().running = false;
        const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
        for (auto it = tape().before.rbegin(); it != tape().before.rend(); ++it) {
            it->first.copy_(it->second);
        }
        tape().before.clear();
        tasks_ = std::exchange(tape().tasks, {});
    }
    void instantiate() override {}
    void replay() override {
        const Guard guard;
        const c10::Stream stream = guard.getStream(Guard::cuda(current_device));
        for (const auto& task : tasks_) {
            stream_of(stream.id(), stream.device_index()).push([task] {
                const c10::impl::ExcludeDispatchKeyGuard no(c10::autograd_dispatch_keyset);
                task();
            });
        }
    }
    void reset() override { tasks_.clear(); }
    at::MempoolId_t pool() const override { return {0, 0}; }
    void enable_debug_mode() override {}
    void debug_dump(const std::string& /*path*/) override {}

private:
    std::vector<std::function<void()>> tasks_;
};

} // namespace
namespace at {
REGISTER_GRAPH_IMPL(CUDA, FakeGraph)
} // namespace at

// Found by name, as those of a CUDA runtime that libtorch has loaded.
extern "C" cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    const char* const first = std::getenv("FAKE_FIRST_GPU"); // of those that a cgroup leaves
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02d:00.0",
                  device + (first == nullptr ? 0 : std::atoi(first)));
    return cudaSuccess;
}
static int version_in(const char* name) { // of the environment
    const char* const text = std::getenv(name);
    return text == nullptr ? 13000 : std::atoi(text);
}
extern "C" cudaError_t cudaDriverGetVersion(int* version) {
    *version = version_in("FAKE_DRIVER");
    return cudaSuccess;
}
extern "C" cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = version_in("FAKE_RUNTIME");
    return cudaSuccess;
}
static std::atomic<int> relaxed{0};
extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    relaxed += *mode == cudaStreamCaptureModeRelaxed ? 1 : 0;
    return cudaSuccess;
}
int fake::relaxed_threads() {
    return relaxed;
}
int fake::host_waits() {
    return waits_of_host;
}

void fake::shuffle(unsigned seed) {
    shuffle_seed = seed;
}
void fake::slow_down(const c10::Stream& stream, std::chrono::microseconds pause) {
    stream_of(stream.id(), stream.device_index()).slow_down(pause);
}
int fake::streams() {
    return static_cast<int>(next_stream);
}
namespace {
std::atomic<const char*> failing{nullptr};
std::atomic<int> succeeding{0};
} // namespace
void fake::fail(const char* call, int after) {
    succeeding = after;
    failing = call;
}
void fake::fail_if_told(const char* call) {
    const char* const told = failing;
    if (told != nullptr && std::string_view(told) == call && succeeding-- == 0) {
        failing = nullptr;
        TORCH_CHECK_WITH(OutOfMemoryError, std::string_view(call) != "cudaMalloc",
                         "CUDA out of memory. Tried to allocate 2.00 MiB. The fake has none");
        TORCH_CHECK(false, "CUDA error: the fake fails in ", call);
    }
}

void fake::writes(void* data, std::size_t bytes) {
    if (tape().running) {
        tape().writes(at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte));
    }
}
void fake::enqueue(void* stream, std::function<void()> task) {
    if (tape().running) {
        tape().tasks.push_back(task);
    }
    static_cast<Stream*>(stream)->push(std::move(task));
}
