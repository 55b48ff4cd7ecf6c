// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory in which the windows of a StreamReader lie, one after the other.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/gather.hpp>
#include <rtrain/data/page_memory.hpp>
#include <rtrain/data/pick_rows.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The memory of windows that are gone, for those to come: new ones would leave holes between
/// blocks.
class WindowMemory {
public:
    /// What all windows take, and the memory kept for others.
    [[nodiscard]] std::int64_t bytes() const {
        const std::scoped_lock lock(mutex_);
        return bytes_;
    }
    /// Of that, the memory for others.
    [[nodiscard]] std::int64_t spare_bytes() const {
        const std::scoped_lock lock(mutex_);
        std::int64_t bytes = 0;
        for (const auto& memory : spares_) {
            bytes += bytes_of(memory);
        }
        return bytes;
    }

    /// Rows of these batches: see pick_rows(). Throws DataError [RT-D19].
    [[nodiscard]] Batch window_of(std::vector<Batch>& parts, const std::vector<PartRow>& rows) {
        std::vector<const Batch*> batches;
        for (Batch& part : parts) {
            part.each_column([](at::Tensor& tensor) { tensor = tensor.contiguous(); });
            batches.push_back(&part);
        }
        std::vector<at::Tensor> memory = spare();
        std::size_t next = 0;
        Batch window =
            pick_rows(batches, rows, [&](at::IntArrayRef shape, const at::TensorOptions& options) {
                at::Tensor target = next < memory.size() ? std::move(memory[next]) : at::Tensor();
                ++next;
                const bool fits = target.defined() && target.dtype() == options.dtype();
                return fits ? target.resize_(shape)
                            : detail::empty_in_pages(shape, options.dtype().toScalarType());
            });
        add(window);
        return window;
    }

    void give_back(Batch window) {
        std::vector<at::Tensor> memory;
        window.each_column([&](at::Tensor& tensor) { memory.push_back(std::move(tensor)); });
        if (!memory.empty()) {
            const std::scoped_lock lock(mutex_);
            spares_.push_back(std::move(memory));
        }
    }

private:
    [[nodiscard]] std::vector<at::Tensor> spare() {
        const std::scoped_lock lock(mutex_);
        if (spares_.empty()) {
            return {};
        }
        std::vector<at::Tensor> memory = std::move(spares_.back());
        spares_.pop_back();
        bytes_ -= bytes_of(memory);
        return memory;
    }
    [[nodiscard]] static std::int64_t bytes_of(const std::vector<at::Tensor>& memory) {
        std::int64_t bytes = 0;
        for (const at::Tensor& tensor : memory) {
            bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
        }
        return bytes;
    }
    void add(Batch& window) {
        const std::scoped_lock lock(mutex_);
        window.each_column([&](const at::Tensor& tensor) {
            bytes_ += static_cast<std::int64_t>(tensor.storage().nbytes());
        });
    }

    mutable std::mutex mutex_;
    std::vector<std::vector<at::Tensor>> spares_; ///< the columns of a window each
    std::int64_t bytes_ = 0;
};

} // namespace rtrain::data
