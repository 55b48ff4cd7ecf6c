// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values of a pickle while it is built: all values, the stack, and the memo. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/format/pickle/pickle_bytes.hpp>
#include <rtrain/format/pickle/pickle_values.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint::pickle {

class Stack : public Bytes {
public:
    explicit Stack(std::span<const char> pickle) : Bytes(pickle) {
        values_.resize(1); // the shared null value
    }

    [[nodiscard]] const Value& value(Index index) const { return values_[index]; }
    [[nodiscard]] bool is(Index index, Kind kind) const { return values_[index].kind == kind; }

    [[nodiscard]] std::string_view text(Index index) const {
        return {at(of(index, Kind::text).data), values_[index].count};
    }
    /// Items of a tuple, list, or dict.
    [[nodiscard]] std::span<const Index> items(Index index) const {
        const Value& value = values_[index];
        if (value.kind == Kind::tuple) {
            return {tuples_.data() + value.data, value.count};
        }
        if (value.kind != Kind::list && value.kind != Kind::dict) {
            throw malformed();
        }
        if (value.data == no_container) {
            return {};
        }
        return containers_[value.data];
    }
    [[nodiscard]] std::int64_t integer(Index index) const {
        return static_cast<std::int64_t>(of(index, Kind::integer).data);
    }
    [[nodiscard]] std::optional<Global> global(Index index) const {
        const Value& value = values_[index];
        return value.kind == Kind::global ? std::optional(static_cast<Global>(value.data))
                                          : std::nullopt;
    }
    /// Returns the value if it has this kind; throws otherwise.
    [[nodiscard]] const Value& of(Index index, Kind kind) const {
        if (!is(index, kind)) {
            throw malformed();
        }
        return values_[index];
    }

protected:
    static constexpr Index none = 0;

    void push(Value value) {
        if (values_.size() == max_values) {
            throw std::invalid_argument("its pickle has more than 4 million values");
        }
        values_.push_back(value);
        push_again(static_cast<Index>(values_.size() - 1));
    }
    /// Pushes an existing value.
    void push_again(Index index) {
        if (stack_.size() == max_values) {
            throw std::invalid_argument("its pickle has more than 4 million values");
        }
        stack_.push_back(index);
    }
    /// Height of the stack above the newest mark; nothing below may be popped.
    [[nodiscard]] std::size_t height() const {
        return stack_.size() - (marks_.empty() ? 0 : marks_.back());
    }
    [[nodiscard]] Index top() const {
        if (height() == 0) {
            throw malformed();
        }
        return stack_.back();
    }
    Index pop() {
        const Index index = top();
        stack_.pop_back();
        return index;
    }
    /// Values pushed since the newest mark; valid until the next push.
    [[nodiscard]] std::span<const Index> since_mark() {
        if (marks_.empty()) {
            throw malformed();
        }
        const std::size_t begin = marks_.back();
        marks_.pop_back();
        const std::span<const Index> items(stack_.data() + begin, stack_.size() - begin);
        stack_.resize(begin);
        return items;
    }
    void mark() {
        if (marks_.size() == max_marks) {
            throw malformed();
        }
        marks_.push_back(stack_.size());
    }
    void push_tuple(std::span<const Index> items) {
        const Value tuple{Kind::tuple, static_cast<Index>(items.size()), tuples_.size()};
        tuples_.insert(tuples_.end(), items.begin(), items.end());
        push(tuple);
    }
    void push_tuple_of(std::size_t count) {
        if (height() < count) {
            throw malformed();
        }
        const std::span<const Index> items(stack_.data() + stack_.size() - count, count);
        stack_.resize(stack_.size() - count);
        push_tuple(items);
    }
    void push_container(Kind kind) { push({kind, 0, no_container}); }
    /// Makes `index` an alias of `other`; they then share items.
    void become(Index index, Index other) { values_[index] = values_[other]; }
    /// Adds to the list or dict on top of the stack.
    void append(Kind kind, std::span<const Index> items) {
        Value& value = values_[top()];
        if (value.kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) {
            throw malformed();
        }
        if (value.data == no_container) {
            value.data = containers_.size();
            containers_.emplace_back();
        }
        auto& container = containers_[value.data];
        container.insert(container.end(), items.begin(), items.end());
    }
    void push_integer(std::int64_t value) {
        push({Kind::integer, 0, static_cast<std::uint64_t>(value)});
    }
    void push_text(std::uint64_t size) {
        const auto text = take(size);
        push({Kind::text, static_cast<Index>(text.size()), offset_of(text)});
    }
    void push_long(std::size_t size) {
        if (size > 8) { // for example a generator's seed
            (void)take(size);
            push({});
            return;
        }
        std::uint64_t value = number(size);
        if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) {
            value |= ~std::uint64_t{0} << (8 * size); // two's complement
        }
        push_integer(static_cast<std::int64_t>(value));
    }
    void remember(std::uint64_t place) {
        if (place < memo_.size()) {
            memo_[place] = top();
        } else if (place == memo_.size()) {
            memo_.push_back(top());
        } else {
            throw malformed(); // picklers number entries consecutively
        }
    }
    void recall(std::uint64_t place) {
        if (place >= memo_.size()) {
            throw malformed();
        }
        push_again(memo_[place]);
    }
    /// The result: the value left at the end.
    [[nodiscard]] Index last() const {
        if (!marks_.empty() || stack_.size() != 1) {
            throw malformed();
        }
        return stack_.back();
    }

private:
    static constexpr std::uint64_t no_container = std::numeric_limits<std::uint64_t>::max();

    std::vector<Value> values_;
    std::vector<Index> tuples_;
    std::vector<std::vector<Index>> containers_;
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;
    std::vector<Index> memo_;
};

} // namespace rtrain::checkpoint::pickle
