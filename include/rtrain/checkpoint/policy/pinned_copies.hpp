// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies from a device to pageable memory. The device fills one pinned buffer while the host
/// empties another; a plain copy would wait for each tensor.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::checkpoint {

class PinnedCopies {
public:
    /// Starts to copy a tensor on a device to `to`, as contiguous elements.
    void add(const at::Tensor& tensor, char* to) {
        const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
        const at::Tensor bytes = plain.view({-1}).view(at::kByte);
        if (device_ != bytes.device()) {
            finish();
            device_ = bytes.device();
        }
        for (std::int64_t done = 0; done < bytes.numel();) {
            if (buffers_[filling_].used == buffer_bytes) {
                turn();
            }
            Buffer& buffer = buffers_[filling_];
            const std::int64_t count = std::min(buffer_bytes - buffer.used, bytes.numel() - done);
            const at::Tensor part = buffer.memory().narrow(0, buffer.used, count);
            part.copy_(bytes.narrow(0, done, count), /*non_blocking=*/true);
            buffer.parts.push_back({part, to + done});
            buffer.used += count;
            done += count;
        }
    }

    /// Returns when everything is copied.
    void finish() {
        turn();
        turn();
    }

private:
    static constexpr std::int64_t buffer_bytes = std::int64_t{32} << 20;

    struct Part {
        at::Tensor from; ///< in the buffer
        char* to;
    };
    struct Buffer {
        at::Tensor whole;
        std::int64_t used = 0;
        std::vector<Part> parts;
        std::optional<c10::Event> filled;

        [[nodiscard]] const at::Tensor& memory() {
            if (!whole.defined()) {
                whole = at::empty({buffer_bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
            }
            return whole;
        }
    };

    /// Ends the filling of a buffer, and empties the other one.
    void turn() {
        if (Buffer& full = buffers_[filling_]; full.used > 0) {
            const c10::impl::VirtualGuardImpl streams(device_->type());
            full.filled.emplace(device_->type());
            full.filled->record(streams.getStream(*device_));
        }
        filling_ = 1 - filling_;
        if (Buffer& next = buffers_[filling_]; next.used > 0) {
            next.filled->synchronize();
            for (const Part& part : next.parts) {
                at::from_blob(part.to, part.from.sizes(), part.from.options()).copy_(part.from);
            }
            next.parts.clear();
            next.used = 0;
        }
    }

    std::optional<at::Device> device_; ///< of the tensors so far
    std::array<Buffer, 2> buffers_;
    std::size_t filling_ = 0;
};

} // namespace rtrain::checkpoint
