// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door stream_reader.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/rows.hpp>
#include <rtrain/data/stream_reader.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

namespace rtrain::detail {

/// Copies `from` into the memory of `former`, one of the same columns, where it has such memory.
[[nodiscard]] inline data::Batch copied_into(data::Batch former, const data::Batch& from) {
    std::vector<at::Tensor> memory;
    former.each_column([&](at::Tensor& tensor) { memory.push_back(std::move(tensor)); });
    data::Batch copy = from;
    std::size_t next = 0;
    copy.each_column([&](at::Tensor& tensor) {
        at::Tensor target = next < memory.size() ? std::move(memory[next]) : at::Tensor();
        ++next;
        if (!target.defined() || target.scalar_type() != tensor.scalar_type()) {
            target = at::empty({0}, tensor.options());
        }
        tensor = target.resize_(tensor.sizes()).copy_(tensor);
    });
    return copy;
}

} // namespace rtrain::detail

namespace rtrain::data {

RTRAIN_DOOR StreamShape stream_shape(const BlockIndex& blocks, std::int64_t lanes,
                                     std::int64_t ranks, std::int64_t memory_bytes) {
    if (lanes < 1) {
        throw DataError(
            "RT-D22", detail::concat("data::Streaming has ", lanes, " lanes; expected at least 1"));
    }
    const std::int64_t used = ((ranks - 1) / lanes + 1) * lanes;
    const std::int64_t window = memory_bytes / 2 / used / blocks.row_bytes();
    if (window < 1) {
        throw DataError("RT-D20",
                        detail::concat("batches() has ", memory_bytes, " bytes of memory for ",
                                       used, " lanes, but a row of ",
                                       blocks.source().name_of(blocks.widest()), " takes about ",
                                       blocks.row_bytes(), "; set memory_bytes to at least ",
                                       2 * used * blocks.row_bytes(), ", or take fewer lanes"));
    }
    return {used, std::clamp<std::int64_t>((blocks.rows() - 1) / used + 1, 1, window)};
}

RTRAIN_DOOR StreamReader::StreamReader(std::shared_ptr<const BlockIndex> blocks, StreamOrder order,
                                       std::int64_t memory_bytes)
    : blocks_(std::move(blocks)), order_(std::move(order)), memory_bytes_(memory_bytes) {}

RTRAIN_DOOR Batch StreamReader::rows(const StridedPlaces& places,
                                     std::optional<std::int64_t> kept_from) {
    // Every `turn`-th of these places is in the same lane.
    const std::int64_t lanes = order_.shape().lanes;
    const std::int64_t turn =
        std::min(lanes / std::gcd(lanes, places.stride), std::max<std::int64_t>(places.count, 1));
    std::vector<Batch> parts;
    at::Tensor order = at::empty({places.count}, at::kLong); // of the batch in the parts
    auto* const order_of = order.mutable_data_ptr<std::int64_t>();
    std::int64_t taken = 0;
    for (std::int64_t first = 0; first < turn; ++first) {
        std::int64_t i = first;
        while (i < places.count) {
            const auto [lane, number, begin] = order_.find(places.first + i * places.stride);
            const Window& from = window(lane, number, kept_from);
            std::vector<std::int64_t> rows;
            for (; i < places.count; i += turn) {
                const auto place = order_.find(places.first + i * places.stride);
                if (place.window != number) {
                    break;
                }
                rows.push_back(from.order[place.row]);
                order_of[i] = taken++;
            }
            parts.push_back(select_rows(from.batch, at::tensor(rows, at::kLong)));
        }
    }
    return parts.size() == 1 ? std::move(parts.front()) : select_rows(concatenate(parts), order);
}

RTRAIN_DOOR std::int64_t StreamReader::bytes() const {
    std::int64_t bytes = bytes_of_cursors();
    for (const auto& [number, lane] : lanes_) {
        for (const Window& window : lane.windows) {
            bytes += bytes_of(window.batch);
        }
    }
    return bytes;
}

RTRAIN_DOOR const StreamReader::Window&
StreamReader::window(std::int64_t number_of_lane, std::int64_t number,
                     const std::optional<std::int64_t>& kept_from) {
    Lane& lane = lanes_[number_of_lane];
    for (const Window& known : lane.windows) {
        if (known.number == number) {
            return known;
        }
    }
    const std::int64_t oldest =
        kept_from ? std::min(number, order_.find(*kept_from).window) : number;
    Batch former; // whose memory is used again: new ones would leave holes between blocks
    if (!lane.windows.empty() && lane.windows.front().number < oldest) {
        former = std::move(lane.windows.front().batch);
    }
    lane.windows.remove_if([&](const Window& known) { return known.number < oldest; });
    Batch batch = detail::copied_into(std::move(former),
                                      read(lane, order_.pieces_of(number_of_lane, number)));
    lane.windows.push_back({number, order_.order_of(number_of_lane, number), std::move(batch)});
    return lane.windows.back();
}

RTRAIN_DOOR Batch StreamReader::read(Lane& lane, const std::vector<StreamOrder::Piece>& pieces) {
    std::vector<Batch> parts;
    for (const StreamOrder::Piece& piece : pieces) {
        read_piece(lane, piece, parts);
    }
    if (bytes_of_cursors() > memory_bytes_ / 4) {
        lane.cursor.reset();
    }
    return concatenate(parts);
}

RTRAIN_DOOR void StreamReader::read_piece(Lane& lane, const StreamOrder::Piece& piece,
                                          std::vector<Batch>& parts) {
    if (!lane.cursor || lane.block != piece.block || lane.row != piece.first_row) {
        lane.cursor.reset(); // before the next one takes memory
        lane.cursor = blocks_->source().open(piece.block, piece.first_row);
        lane.block = piece.block;
        lane.row = piece.first_row;
    }
    for (const std::int64_t end = piece.first_row + piece.rows; lane.row < end;) {
        const std::int64_t asked = end - lane.row;
        Batch part = lane.cursor->next(asked);
        if (part.size() < 1 || part.size() > asked) {
            throw blocks_->miscounted(piece.block, std::to_string(lane.row + part.size()));
        }
        lane.row += part.size();
        parts.push_back(std::move(part));
    }
    if (lane.row == blocks_->rows_of(piece.block)) {
        if (lane.cursor->next(1).size() > 0) {
            throw blocks_->miscounted(piece.block, "more");
        }
        lane.cursor.reset();
    }
}

RTRAIN_DOOR std::int64_t StreamReader::bytes_of_cursors() const {
    std::int64_t bytes = 0;
    for (const auto& [number, lane] : lanes_) {
        bytes += lane.cursor ? lane.cursor->bytes() : 0;
    }
    return bytes;
}

} // namespace rtrain::data
