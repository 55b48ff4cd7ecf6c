// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recycles the memory of a StreamReader's windows.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/page_memory.hpp>
#include <rtrain/data/batch/pick_rows.hpp>
#include <rtrain/data/order/stream_order.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Keeps the memory of dropped windows for the next ones: new allocations would fragment the heap.
class WindowMemory {
public:
    /// Bytes of all windows, including spare memory.
    [[nodiscard]] std::int64_t bytes() const {
        const std::scoped_lock lock(mutex_);
        return bytes_;
    }
    /// Bytes of spare memory alone.
    [[nodiscard]] std::int64_t spare_bytes() const {
        const std::scoped_lock lock(mutex_);
        std::int64_t bytes = 0;
        for (const auto& memory : spares_) {
            bytes += bytes_of(memory);
        }
        return bytes;
    }

    /// Assembles the rows of a window from its parts. Throws DataError [RT-D19].
    [[nodiscard]] Batch window_of(std::vector<Batch>& parts,
                                  const StreamOrder::WindowOrder& order) {
        std::vector<PickSource> sources;
        std::vector<const PickSource*> pointers;
        sources.reserve(parts.size());
        for (Batch& part : parts) {
            part.each_column([](at::Tensor& tensor) { tensor = tensor.contiguous(); });
            pointers.push_back(&sources.emplace_back(part));
        }
        Spare memory = spare();
        find_rows(parts, order, memory);
        std::size_t next = 0;
        Batch window = pick_rows(
            pointers, ScatteredRows(memory.rows), [&](at::IntArrayRef shape, at::ScalarType type) {
                at::Tensor target =
                    next < memory.columns.size() ? std::move(memory.columns[next]) : at::Tensor();
                ++next;
                const bool fits = target.defined() && target.scalar_type() == type;
                return fits ? target.resize_(shape) : detail::empty_in_pages(shape, type);
            });
        const std::scoped_lock lock(mutex_);
        bytes_ += bytes_of(tensors_of(window));
        memory.columns.clear();
        rows_.push_back(std::move(memory));
        return window;
    }

    void give_back(const Batch& window) {
        if (std::vector<at::Tensor> columns = tensors_of(window); !columns.empty()) {
            const std::scoped_lock lock(mutex_);
            spares_.push_back(std::move(columns));
        }
    }

    /// Lets the system reclaim spare memory under memory pressure until the next window is read; if
    /// not reclaimed, it counts as memory of this process.
    void rest() const {
        const std::scoped_lock lock(mutex_);
        for (const auto& columns : spares_) {
            for (const at::Tensor& column : columns) {
                detail::offer_pages(column);
            }
        }
    }

private:
    /// The memory of one window.
    struct Spare {
        std::vector<at::Tensor> columns;
        std::vector<ScatteredRows::Row> as_read;
        std::vector<ScatteredRows::Row> rows;
    };

    [[nodiscard]] Spare spare() {
        const std::scoped_lock lock(mutex_);
        Spare memory;
        if (!rows_.empty()) {
            memory = std::move(rows_.back());
            rows_.pop_back();
        }
        if (!spares_.empty()) {
            memory.columns = std::move(spares_.back());
            spares_.pop_back();
            bytes_ -= bytes_of(memory.columns);
        }
        return memory;
    }

    /// Finds the rows of a window in its parts, in the order in which they are taken, so that the
    /// assembled window has them close together.
    static void find_rows(const std::vector<Batch>& parts, const StreamOrder::WindowOrder& order,
                          Spare& memory) {
        memory.as_read.clear();
        for (std::uint32_t part = 0; part < parts.size(); ++part) {
            const auto rows = static_cast<std::uint32_t>(parts[part].size());
            for (std::uint32_t row = 0; row < rows; ++row) {
                memory.as_read.push_back({part, row});
            }
        }
        memory.rows.clear();
        std::array<std::int64_t, 1024> numbers{};
        while (memory.rows.size() < memory.as_read.size()) {
            const std::size_t begin = memory.rows.size();
            const auto some =
                std::span(numbers).first(std::min(numbers.size(), memory.as_read.size() - begin));
            order.fill(static_cast<std::int64_t>(begin), some);
            for (const std::int64_t number : some) {
                memory.rows.push_back(memory.as_read[static_cast<std::size_t>(number)]);
            }
        }
    }

    /// In the order in which pick_rows() allocates.
    [[nodiscard]] static std::vector<at::Tensor> tensors_of(const Batch& window) {
        std::vector<at::Tensor> tensors;
        for (const auto& [name, column] : window.columns()) {
            tensors.push_back(column);
        }
        for (const auto& [name, column] : window.ragged_columns()) {
            tensors.push_back(column.offsets);
            tensors.push_back(column.values);
        }
        for (const auto& [name, mask] : window.masks()) {
            tensors.push_back(mask);
        }
        return tensors;
    }
    [[nodiscard]] static std::int64_t bytes_of(const std::vector<at::Tensor>& memory) {
        std::int64_t bytes = 0;
        for (const at::Tensor& tensor : memory) {
            bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
        }
        return bytes;
    }

    mutable std::mutex mutex_;
    std::vector<std::vector<at::Tensor>> spares_; ///< the columns of one window each
    std::vector<Spare> rows_; ///< without columns: one per thread that has assembled a window
    std::int64_t bytes_ = 0;
};

} // namespace rtrain::data
