// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machine that runs a pickle. Python's may call anything; this one calls nothing: it puts
/// values together, and writes down which functions the pickle would have called. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/format/pickle_values.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint {
namespace pickle {

/// Runs a pickle as far as putting its values together.
class Machine {
public:
    explicit Machine(std::span<const char> pickle) : pickle_(pickle) {
        if (pickle.size() > max_size) {
            throw std::invalid_argument("its pickle is larger than 64 MiB");
        }
        values_.resize(1); // none, which is shared
        while (step()) {
        }
    }

    [[nodiscard]] Index result() const noexcept { return result_; }
    [[nodiscard]] const Value& value(Index index) const { return values_[index]; }
    [[nodiscard]] bool is(Index index, Kind kind) const { return values_[index].kind == kind; }

    [[nodiscard]] std::string_view text(Index index) const {
        return {pickle_.data() + of(index, Kind::text).data, values_[index].count};
    }
    /// The items of a tuple, list, or dict.
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
    /// The value, when it is of this kind.
    [[nodiscard]] const Value& of(Index index, Kind kind) const {
        if (!is(index, kind)) {
            throw malformed();
        }
        return values_[index];
    }

    [[nodiscard]] std::invalid_argument malformed() const {
        return std::invalid_argument("its pickle is malformed at byte " + std::to_string(place_));
    }

private:
    static constexpr std::uint64_t no_container = std::numeric_limits<std::uint64_t>::max();

    [[nodiscard]] std::span<const char> take(std::uint64_t bytes) {
        if (bytes > pickle_.size() - place_) {
            throw std::invalid_argument("its pickle is cut off");
        }
        place_ += static_cast<std::size_t>(bytes);
        return pickle_.subspan(place_ - static_cast<std::size_t>(bytes),
                               static_cast<std::size_t>(bytes));
    }
    /// A little-endian number.
    [[nodiscard]] std::uint64_t number(std::size_t bytes) {
        std::uint64_t value = 0;
        const auto from = take(bytes);
        for (std::size_t i = 0; i < bytes; ++i) {
            value |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
        }
        return value;
    }
    [[nodiscard]] std::string_view line() {
        const auto begin = pickle_.begin() + static_cast<std::ptrdiff_t>(place_);
        const auto end = std::find(begin, pickle_.end(), '\n');
        if (end == pickle_.end()) {
            throw std::invalid_argument("its pickle is cut off");
        }
        const auto text = take(static_cast<std::uint64_t>(end - begin) + 1);
        return {text.data(), text.size() - 1};
    }

    void push(Value value) {
        if (values_.size() == max_values) {
            throw std::invalid_argument("its pickle has more than 4 million values");
        }
        values_.push_back(value);
        push_again(static_cast<Index>(values_.size() - 1));
    }
    /// A value that exists already.
    void push_again(Index index) {
        if (stack_.size() == max_values) {
            throw std::invalid_argument("its pickle has more than 4 million values");
        }
        stack_.push_back(index);
    }
    /// Nothing below the newest mark may be taken.
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
    /// What was pushed since the newest mark; valid until the next push.
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
        push({Kind::text, static_cast<Index>(text.size()),
              static_cast<std::uint64_t>(text.data() - pickle_.data())});
    }
    void push_long(std::size_t size) {
        if (size > 8) { // such as the seed of a generator
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
            throw malformed(); // picklers count up
        }
    }
    void recall(std::uint64_t place) {
        if (place >= memo_.size()) {
            throw malformed();
        }
        push_again(memo_[place]);
    }

    /// `function(*arguments)`: what the result would be.
    void call(Index function, Index arguments) {
        const auto global_of = global(function);
        const auto args = items(arguments);
        if (!global_of || !is(arguments, Kind::tuple)) {
            throw malformed();
        }
        switch (*global_of) {
        case Global::ordered_dict:
        case Global::counter:
            push({Kind::dict, 0, no_container});
            if (args.size() == 1 && is(args[0], Kind::dict)) {
                values_[top()] = values_[args[0]]; // Counter({...})
            } else if (args.size() == 1) {
                for (const Index pair : std::vector(items(args[0]).begin(), items(args[0]).end())) {
                    if (items(pair).size() != 2) {
                        throw malformed();
                    }
                    append(Kind::dict, items(pair));
                }
            } else if (!args.empty()) {
                throw malformed();
            }
            return;
        case Global::rebuild_tensor:
        case Global::rebuild_tensor_v2:
        case Global::rebuild_tensor_v3:
            push({Kind::tensor, static_cast<Index>(*global_of), arguments});
            return;
        case Global::rebuild_parameter:
            if (args.empty() || !is(args[0], Kind::tensor)) {
                throw malformed();
            }
            push_again(args[0]);
            return;
        case Global::rebuild_from_type: { // function, class, arguments, attributes
            if (args.size() < 3 || global(args[1]) != Global::tensor_class ||
                global(args[0]) == Global::rebuild_from_type) {
                throw malformed();
            }
            call(args[0], args[2]);
            return;
        }
        case Global::size:
            if (args.size() != 1 || !is(args[0], Kind::tuple)) {
                throw malformed();
            }
            push_again(args[0]);
            return;
        case Global::opaque:
            push({});
            return;
        default:
            throw malformed();
        }
    }

    /// One instruction; false after the last.
    bool step() {
        switch (const char instruction = take(1)[0]) {
        case '\x80': // PROTO
            if (number(1) > 5) {
                throw std::invalid_argument("its pickle is of an unknown protocol");
            }
            return true;
        case '.': // STOP
            if (!marks_.empty() || stack_.size() != 1) {
                throw malformed();
            }
            result_ = stack_.back();
            return false;
        case '(': // MARK
            if (marks_.size() == max_marks) {
                throw malformed();
            }
            marks_.push_back(stack_.size());
            return true;
        case 'N': // NONE
            push_again(0);
            return true;
        case '\x88': // NEWTRUE
        case '\x89': // NEWFALSE
            push({Kind::boolean, 0, instruction == '\x88' ? 1U : 0U});
            return true;
        case 'J': // BININT
            push_integer(static_cast<std::int32_t>(number(4)));
            return true;
        case 'K': // BININT1
            push_integer(static_cast<std::int64_t>(number(1)));
            return true;
        case 'M': // BININT2
            push_integer(static_cast<std::int64_t>(number(2)));
            return true;
        case '\x8a': // LONG1
            push_long(static_cast<std::size_t>(number(1)));
            return true;
        case 'G': // BINFLOAT
            (void)take(8);
            push_again(0);
            return true;
        case 'X': // BINUNICODE
            push_text(number(4));
            return true;
        case 'U': // SHORT_BINSTRING
            push_text(number(1));
            return true;
        case ')': // EMPTY_TUPLE
            push_tuple({});
            return true;
        case '\x85': // TUPLE1
        case '\x86': // TUPLE2
        case '\x87': // TUPLE3
            push_tuple_of(static_cast<unsigned char>(instruction) - 0x84U);
            return true;
        case 't': // TUPLE
            push_tuple(since_mark());
            return true;
        case ']': // EMPTY_LIST
            push({Kind::list, 0, no_container});
            return true;
        case '}': // EMPTY_DICT
            push({Kind::dict, 0, no_container});
            return true;
        case '\x8f': // EMPTY_SET
            push({});
            return true;
        case 'a': { // APPEND
            const Index item = pop();
            append(Kind::list, std::span(&item, 1));
            return true;
        }
        case 'e': // APPENDS
            append(Kind::list, since_mark());
            return true;
        case 's': { // SETITEM
            const Index value = pop();
            const std::array<Index, 2> pair{pop(), value};
            append(Kind::dict, pair);
            return true;
        }
        case 'u': // SETITEMS
            append(Kind::dict, since_mark());
            return true;
        case 'q': // BINPUT
            remember(number(1));
            return true;
        case 'r': // LONG_BINPUT
            remember(number(4));
            return true;
        case 'h': // BINGET
            recall(number(1));
            return true;
        case 'j': // LONG_BINGET
            recall(number(4));
            return true;
        case 'c': { // GLOBAL
            const std::string_view module = line();
            push(find_global(module, line()));
            return true;
        }
        case 'R': { // REDUCE
            const Index arguments = pop();
            call(pop(), arguments);
            return true;
        }
        case 'b': // BUILD: attributes, such as _metadata of a state_dict
            (void)pop();
            if (!is(top(), Kind::dict) && !is(top(), Kind::tensor)) {
                throw malformed();
            }
            return true;
        case 'Q': { // BINPERSID
            const Index id = pop();
            (void)of(id, Kind::tuple);
            push({Kind::storage, 0, id});
            return true;
        }
        default:
            throw std::invalid_argument(
                "its pickle has an instruction at byte " + std::to_string(place_ - 1) +
                " that weights do not need; torch.save writes without it at its default protocol");
        }
    }

    std::span<const char> pickle_;
    std::size_t place_ = 0;
    std::vector<Value> values_;
    std::vector<Index> tuples_;
    std::vector<std::vector<Index>> containers_;
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;
    std::vector<Index> memo_;
    Index result_ = 0;
};

} // namespace pickle
} // namespace rtrain::checkpoint
