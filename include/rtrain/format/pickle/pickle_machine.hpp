// SPDX-License-Identifier: Apache-2.0
/// @file
/// The virtual machine that runs a pickle. Python's may call anything. This one calls nothing: it
/// builds values and records which functions the pickle would have called. Cost tier 0: std only.
#pragma once

#include <rtrain/format/pickle/pickle_stack.hpp>
#include <rtrain/format/pickle/pickle_values.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint::pickle {

/// Runs a pickle up to the construction of its values.
class Machine : public Stack {
public:
    explicit Machine(std::span<const char> pickle) : Stack(pickle) {
        if (pickle.size() > max_size) {
            throw std::invalid_argument("its pickle is larger than 64 MiB");
        }
        while (step()) {
        }
    }

    [[nodiscard]] Index result() const noexcept { return result_; }

private:
    /// Executes one instruction; returns false after the last.
    bool step() {
        const char instruction = take(1)[0];
        if (instruction == '.') { // STOP
            result_ = last();
            return false;
        }
        if (!push_atom(instruction) && !put_together(instruction) && !recollect(instruction) &&
            !construct(instruction)) {
            throw std::invalid_argument(
                "its pickle has an instruction at byte " + std::to_string(place() - 1) +
                " that weights do not need; save it with torch.save at its default protocol");
        }
        return true;
    }

    // Each returns false for an instruction of a different family.

    /// Numbers and strings.
    bool push_atom(char instruction) {
        switch (instruction) {
        case 'N': // NONE
            push_again(none);
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
            push_again(none);
            return true;
        case 'X': // BINUNICODE
            push_text(number(4));
            return true;
        case 'U': // SHORT_BINSTRING
            push_text(number(1));
            return true;
        default:
            return false;
        }
    }

    /// Tuples, lists and dicts.
    bool put_together(char instruction) {
        switch (instruction) {
        case '(': // MARK
            mark();
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
            push_container(Kind::list);
            return true;
        case '}': // EMPTY_DICT
            push_container(Kind::dict);
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
        default:
            return false;
        }
    }

    /// Memo instructions.
    bool recollect(char instruction) {
        switch (instruction) {
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
        default:
            return false;
        }
    }

    /// Objects of classes, and the instructions around them.
    bool construct(char instruction) {
        switch (instruction) {
        case '\x80': // PROTO
            if (number(1) > 5) {
                throw std::invalid_argument("its pickle is of an unknown protocol");
            }
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
            return false;
        }
    }

    /// Records what `function(*arguments)` would return.
    void call(Index function, Index arguments) {
        const auto global_of = global(function);
        const auto args = items(arguments);
        if (!global_of || !is(arguments, Kind::tuple)) {
            throw malformed();
        }
        switch (*global_of) {
        case Global::ordered_dict:
        case Global::counter:
            push_container(Kind::dict);
            if (args.size() == 1 && is(args[0], Kind::dict)) {
                become(top(), args[0]); // Counter({...})
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

    Index result_ = none;
};

} // namespace rtrain::checkpoint::pickle
