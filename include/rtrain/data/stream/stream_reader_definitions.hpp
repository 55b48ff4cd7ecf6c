// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door stream_reader.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/pick_rows.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/stream/stream_reader.hpp>
#include <rtrain/data/stream/window_memory.hpp>
#include <rtrain/process/context.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>

namespace rtrain::data {

RTRAIN_DOOR std::int64_t used_lanes(std::int64_t lanes, std::int64_t ranks) {
    if (lanes < 1) {
        throw DataError(
            "RT-D22", detail::concat("data::Streaming has ", lanes, " lanes; expected at least 1"));
    }
    return ((ranks - 1) / lanes + 1) * lanes;
}

RTRAIN_DOOR StreamShape stream_shape(const BlockIndex& blocks, std::int64_t lanes,
                                     std::int64_t ranks, std::int64_t memory_bytes) {
    const std::int64_t used = used_lanes(lanes, ranks);
    const std::int64_t window = memory_bytes / 2 / used / blocks.row_bytes();
    if (window < 1) {
        throw DataError("RT-D20",
                        detail::concat("batches() has ", memory_bytes, " bytes of memory for ",
                                       used, " lanes, but a row of ",
                                       blocks.source().name_of(blocks.widest()), " takes about ",
                                       blocks.row_bytes(), "; set memory_bytes to at least ",
                                       2 * used * blocks.row_bytes(), ", or use fewer lanes"));
    }
    return {used, std::clamp<std::int64_t>((blocks.rows() - 1) / used + 1, 1, window)};
}

struct StreamReader::Window {
    Window(std::shared_ptr<WindowMemory> from, std::int64_t of_lane, std::int64_t place_in_lane,
           StreamOrder::WindowOrder of_rows)
        : memory(std::move(from)), lane(of_lane), number(place_in_lane), order(of_rows) {}
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    ~Window() { memory->give_back(batch); }

    std::shared_ptr<WindowMemory> memory;
    std::int64_t lane;
    std::int64_t number; ///< in its lane
    StreamOrder::WindowOrder order;
    bool is_ahead = false; ///< no plan uses it yet
    bool is_read = false;
    Batch batch;                      ///< once it is read
    std::optional<PickSource> source; ///< reads from it
    std::exception_ptr error;         ///< thrown while reading it
};

struct StreamPlan {
    std::vector<std::shared_ptr<StreamReader::Window>> windows;
    std::vector<bool> are_left; ///< for each: the batch continues in a later one of its lane
    std::vector<RowRun> runs;   ///< for each
};

RTRAIN_DOOR StreamReader::StreamReader(std::shared_ptr<const BlockIndex> blocks, StreamOrder order,
                                       std::int64_t memory_bytes,
                                       std::shared_ptr<WindowMemory> memory)
    : blocks_(std::move(blocks)), order_(std::move(order)), memory_bytes_(memory_bytes),
      memory_(memory ? std::move(memory) : std::make_shared<WindowMemory>()) {}

RTRAIN_DOOR StreamReader::~StreamReader() {
    lanes_.clear();
    memory_->rest();
}

RTRAIN_DOOR std::shared_ptr<StreamPlan> StreamReader::plan(const StridedPlaces& places,
                                                           std::optional<std::int64_t> kept_from) {
    const std::int64_t lanes = order_.shape().lanes;
    // Every `turn`-th of these positions is in the same lane.
    const std::int64_t apart = std::gcd(lanes, places.stride);
    const std::int64_t turn = std::min(lanes / apart, places.count);
    const auto rows_apart = static_cast<std::size_t>(places.stride / apart);
    auto plan = std::make_shared<StreamPlan>();
    const std::int64_t oldest_kept =
        kept_from ? order_.find(*kept_from).window : std::numeric_limits<std::int64_t>::max();
    std::vector<std::shared_ptr<Window>> dropped; // freed without the lock
    const Lock lock(mutex_);
    stride_ = places.stride;
    for (std::int64_t first = 0; first < turn; ++first) {
        Window* current = nullptr;
        for (std::int64_t i = first; i < places.count; i += turn) {
            const auto [number_of_lane, number, row] =
                order_.find(places.first + i * places.stride);
            if (current == nullptr || current->number != number) {
                auto& windows = lanes_[number_of_lane].windows;
                const std::int64_t oldest = std::min(number, oldest_kept);
                for (auto window = windows.begin(); window != windows.end();) {
                    if ((*window)->number < oldest) {
                        dropped.push_back(std::move(*window));
                        window = windows.erase(window);
                    } else {
                        ++window;
                    }
                }
                const auto known =
                    std::ranges::find_if(windows, [&number = number](const auto& window) {
                        return window->number == number;
                    });
                if (current != nullptr) {
                    plan->are_left.back() = true;
                }
                plan->are_left.push_back(false);
                plan->windows.push_back(known == windows.end() ? new_window(number_of_lane, number)
                                                               : *known);
                current = plan->windows.back().get();
                current->is_ahead = false;
                plan->runs.push_back({.row = static_cast<std::size_t>(row),
                                      .rows_apart = rows_apart,
                                      .place = static_cast<std::size_t>(i),
                                      .places_apart = static_cast<std::size_t>(turn)});
            }
            ++plan->runs.back().count;
        }
    }
    return plan;
}

RTRAIN_DOOR Batch StreamReader::rows(StreamPlan& plan) {
    auto& windows = plan.windows;
    std::vector<const PickSource*> sources(windows.size());
    struct Left {
        explicit Left(Batch of) : batch(std::move(of)), source(batch) {}
        Batch batch;
        PickSource source;
    };
    std::vector<std::unique_ptr<Left>> left;
    for (std::size_t i = 0; i < windows.size(); ++i) {
        if (plan.are_left[i]) { // its memory is for the next one
            read({&windows[i], 1});
            RowRun& run = plan.runs[i];
            const std::vector<RowRun> taken{
                {.row = run.row, .rows_apart = run.rows_apart, .count = run.count}};
            left.push_back(
                std::make_unique<Left>(pick_rows({&*windows[i]->source}, RunsOfRows(taken))));
            windows[i].reset();
            sources[i] = &left.back()->source;
            run.row = 0;
            run.rows_apart = 1;
        }
    }
    read(windows);
    for (std::size_t i = 0; i < windows.size(); ++i) {
        sources[i] = windows[i] ? &*windows[i]->source : sources[i];
    }
    return pick_rows(sources, RunsOfRows(plan.runs));
}

/// Returns when all these are read; null ones are skipped. Rethrows the error of one.
RTRAIN_DOOR void StreamReader::read(std::span<const std::shared_ptr<Window>> windows) {
    Lock lock(mutex_);
    for (;;) {
        Lane* free = nullptr; // one to be read, which no thread owns
        bool is_complete = true;
        for (const auto& window : windows) {
            if (window && !window->is_read) {
                is_complete = false;
                if (Lane& lane = lanes_[window->lane]; may_read(lane)) {
                    free = &lane;
                    break;
                }
            }
        }
        if (is_complete) {
            break;
        }
        if (free != nullptr) {
            read_some(*free, lock);
        } else {
            is_read_.wait(lock); // for other threads
        }
    }
    for (const auto& window : windows) {
        if (window && window->error) {
            std::rethrow_exception(window->error);
        }
    }
}

RTRAIN_DOOR bool StreamReader::read_ahead() {
    Lock lock(mutex_);
    Lane* const lane = lane_to_read_ahead();
    if (lane != nullptr) {
        read_some(*lane, lock);
    }
    return lane != nullptr;
}

RTRAIN_DOOR std::int64_t StreamReader::bytes() const {
    const Lock lock(mutex_);
    return memory_->bytes() + bytes_of_cursors() + bytes_of_parts();
}

RTRAIN_DOOR std::shared_ptr<StreamReader::Window> StreamReader::new_window(std::int64_t lane,
                                                                           std::int64_t number) {
    auto window = std::make_shared<Window>(memory_, lane, number, order_.order_of(lane, number));
    lanes_[lane].windows.push_back(window);
    lanes_[lane].unread.push_back(window);
    return window;
}

/// The lane whose window is needed first.
RTRAIN_DOOR StreamReader::Lane* StreamReader::lane_to_read_ahead() {
    struct Candidate {
        Lane* lane = nullptr;
        std::int64_t number_of_lane = 0;
        std::int64_t window = 0;
        [[nodiscard]] auto key() const { return std::pair(lane->unread.empty(), window); }
    };
    const std::int64_t rows_apart = stride_ / std::gcd(stride_, order_.shape().lanes);
    Candidate first;
    for (auto& [number, lane] : lanes_) {
        if (lane.windows.empty() || !may_read(lane)) {
            continue;
        }
        const Window& last = **std::ranges::max_element(
            lane.windows, {}, [](const auto& window) { return window->number; });
        // At most one ahead, and none of which other ranks may take all rows.
        const Candidate next{&lane, number,
                             lane.unread.empty() ? last.number + 1 : lane.unread.front()->number};
        const bool is_needed =
            !lane.unread.empty() ||
            (!last.is_ahead && order_.rows_of(number, next.window) >= rows_apart);
        if (is_needed && (first.lane == nullptr || next.key() < first.key())) {
            first = next;
        }
    }
    if (first.lane != nullptr && first.lane->unread.empty()) {
        if (!has_room_for(order_.rows_of(first.number_of_lane, first.window))) {
            return nullptr;
        }
        new_window(first.number_of_lane, first.window)->is_ahead = true;
    }
    return first.lane;
}

/// True if there is memory for a window read ahead, in addition to all required ones. A window is
/// in memory twice while it is read.
RTRAIN_DOOR bool StreamReader::has_room_for(std::int64_t rows) const {
    const std::int64_t lanes = order_.shape().lanes;
    const std::int64_t to_come = // lanes that no batch has reached yet
        lanes / std::gcd(stride_, lanes) - static_cast<std::int64_t>(lanes_.size());
    rows += std::max<std::int64_t>(to_come, 0) * order_.shape().window;
    for (const auto& [number, lane] : lanes_) {
        for (const auto& window : lane.unread) {
            rows += order_.rows_of(number, window->number);
        }
    }
    const std::int64_t bytes = rows * blocks_->row_bytes();
    return memory_->bytes() + std::max<std::int64_t>(bytes - memory_->spare_bytes(), 0) + bytes +
               bytes_of_cursors() + largest_cursor_.value_or(0) <=
           memory_bytes_ - memory_bytes_ / 8;
}

/// True if a thread may start this lane: no thread owns it, and its cursor fits in the budget
/// together with the others.
RTRAIN_DOOR bool StreamReader::may_read(const Lane& lane) const {
    const bool is_alone = std::ranges::none_of(
        lanes_, &Lane::is_busy, [](const auto& of) -> auto& { return of.second; });
    if (is_alone || lane.is_busy || !largest_cursor_) {
        return is_alone;
    }
    const std::int64_t more = std::max<std::int64_t>(*largest_cursor_ - lane.cursor_bytes, 0);
    return bytes_of_cursors() + more <= memory_bytes_ / 8 * 3;
}

/// Reads a piece of the lane's first unread window.
RTRAIN_DOOR void StreamReader::read_some(Lane& lane, Lock& lock) {
    const std::shared_ptr<Window> window = lane.unread.front();
    if (lane.pieces.empty()) {
        lane.pieces = order_.pieces_of(window->lane, window->number);
    }
    take_cursor(lane, lane.pieces[lane.next_piece]);
    lane.is_busy = true;
    lock.unlock();
    bool is_over = false;
    std::int64_t read_bytes = 0;
    std::exception_ptr error;
    try {
        const std::size_t known = lane.parts.size();
        read_piece(lane, lane.pieces[lane.next_piece]);
        for (std::size_t i = known; i < lane.parts.size(); ++i) {
            read_bytes += bytes_of(lane.parts[i]);
        }
        is_over = ++lane.next_piece == lane.pieces.size();
        if (is_over) {
            window->batch = memory_->window_of(lane.parts, window->order);
            window->source.emplace(window->batch);
        }
    } catch (...) {
        error = std::current_exception();
        lane.cursor.reset();
        is_over = true;
    }
    if (is_over) {
        lane.pieces.clear();
        lane.next_piece = 0;
        lane.parts.clear();
    }
    lock.lock();
    lane.is_busy = false;
    lane.cursor_bytes = lane.cursor ? lane.cursor->bytes() : 0;
    largest_cursor_ = std::max(largest_cursor_.value_or(0), lane.cursor_bytes);
    if (is_over && bytes_of_cursors() > memory_bytes_ / 4) {
        lane.cursor.reset();
        lane.cursor_bytes = 0;
    }
    lane.part_bytes = is_over ? 0 : lane.part_bytes + read_bytes;
    if (is_over) {
        window->error = std::move(error);
        window->is_read = true;
        lane.unread.pop_front();
    }
    is_read_.notify_all();
}

/// A lane may begin in the middle of a block where another one ends: takes over that lane's cursor,
/// which is already in the right position.
RTRAIN_DOOR void StreamReader::take_cursor(Lane& lane, const StreamOrder::Piece& piece) {
    const auto is_there = [&](const Lane& of) {
        return of.cursor && of.block == piece.block && of.row == piece.first_row;
    };
    if (piece.first_row == 0 || is_there(lane)) {
        return;
    }
    for (auto& [number, other] : lanes_) {
        if (!other.is_busy && is_there(other)) {
            lane.cursor = std::move(other.cursor);
            lane.block = other.block;
            lane.row = other.row;
            lane.cursor_bytes = std::exchange(other.cursor_bytes, 0);
        }
    }
}

RTRAIN_DOOR void StreamReader::read_piece(Lane& lane, const StreamOrder::Piece& piece) {
    const Reading reading(ProcessContext::current().readings,
                          blocks_->source().name_of(piece.block));
    if (!lane.cursor || lane.block != piece.block || lane.row != piece.first_row) {
        lane.cursor.reset(); // before the next one allocates
        lane.cursor = blocks_->source().open(piece.block, piece.first_row);
        lane.block = piece.block;
        lane.row = piece.first_row;
    }
    for (const std::int64_t end = piece.first_row + piece.rows; lane.row < end;) {
        const std::int64_t asked =
            std::min<std::int64_t>(end - lane.row, std::numeric_limits<std::int32_t>::max());
        Batch part = lane.cursor->next(asked);
        if (part.size() < 1 || part.size() > asked) {
            throw blocks_->miscounted(piece.block, std::to_string(lane.row + part.size()));
        }
        lane.row += part.size();
        lane.parts.push_back(std::move(part));
    }
    if (lane.row == blocks_->rows_of(piece.block)) {
        if (lane.cursor->next(1).size() > 0) {
            throw blocks_->miscounted(piece.block, "more");
        }
        lane.cursor.reset();
    }
}

/// Counts the largest cursor for busy lanes: a thread may be about to open one.
RTRAIN_DOOR std::int64_t StreamReader::bytes_of_cursors() const {
    std::int64_t bytes = 0;
    for (const auto& [number, lane] : lanes_) {
        bytes += lane.is_busy ? std::max(lane.cursor_bytes, largest_cursor_.value_or(0))
                              : lane.cursor_bytes;
    }
    return bytes;
}

/// Bytes read of incomplete windows.
RTRAIN_DOOR std::int64_t StreamReader::bytes_of_parts() const {
    std::int64_t bytes = 0;
    for (const auto& [number, lane] : lanes_) {
        bytes += lane.part_bytes;
    }
    return bytes;
}

} // namespace rtrain::data
