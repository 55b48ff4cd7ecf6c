// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors that a pickle of torch.save describes. Python's pickle is a program, which may call
/// anything; this reader calls nothing. It knows the instructions and the few functions that
/// weights are made of, as torch.load(weights_only=True) does, and only writes down what they say.
/// A pickle that names any other function or class is refused by that name.
///
/// Limits: 64 MiB, 4 million values, a million tensors, 16 dimensions, dictionaries in dictionaries
/// to a depth of 64, names of 512 bytes. Cost tier 0: std only.
#pragma once

#include <rtrain/checkpoint/plain_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// A tensor as a view of a storage, which is a record of the file.
struct PickledTensor {
    /// The record, below "data/".
    std::string storage;
    /// Bytes that the record must have.
    std::uint64_t storage_bytes = 0;
    /// Type of an element as Python calls it, without "torch.".
    std::string_view dtype;
    /// In elements.
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    bool conjugate = false;
    bool negative = false;
};

/// The pickle holds more than weights.
struct ForeignObject : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

namespace pickle {

inline constexpr std::size_t max_size = std::size_t{64} << 20U;
inline constexpr std::size_t max_values = std::size_t{4} << 20U;
inline constexpr std::size_t max_tensors = 1'000'000;
inline constexpr std::size_t max_rank = 16;
inline constexpr std::size_t max_depth = 64;
inline constexpr std::size_t max_name_size = 512;

struct ElementType {
    std::string_view dtype;
    std::uint64_t size;
    /// The class of storages of this type; newer types have none.
    std::string_view storage;
};
inline constexpr std::array<ElementType, 20> element_types{{
    {"float64", 8, "DoubleStorage"},
    {"float32", 4, "FloatStorage"},
    {"float16", 2, "HalfStorage"},
    {"bfloat16", 2, "BFloat16Storage"},
    {"int64", 8, "LongStorage"},
    {"int32", 4, "IntStorage"},
    {"int16", 2, "ShortStorage"},
    {"int8", 1, "CharStorage"},
    {"uint8", 1, "ByteStorage"},
    {"bool", 1, "BoolStorage"},
    {"complex128", 16, "ComplexDoubleStorage"},
    {"complex64", 8, "ComplexFloatStorage"},
    {"uint64", 8, ""},
    {"uint32", 4, ""},
    {"uint16", 2, ""},
    {"float8_e4m3fn", 1, ""},
    {"float8_e5m2", 1, ""},
    {"float8_e8m0fnu", 1, ""},
    {"float8_e4m3fnuz", 1, ""},
    {"float8_e5m2fnuz", 1, ""},
}};

/// What a pickle may name.
enum class Global : unsigned char {
    ordered_dict,
    counter,
    rebuild_tensor,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_parameter,
    rebuild_from_type,
    tensor_class,
    size,
    /// Makes something that is no tensor and holds none, such as a device.
    opaque,
    /// A class of storages; `Value::count` is its place in `element_types`.
    storage_class,
    untyped_storage,
    /// A dtype; `Value::count` as above.
    dtype,
};

enum class Kind : unsigned char {
    opaque, ///< none, a float, bytes, a device: nothing that names or makes tensors
    boolean,
    integer,
    text,    ///< `data` and `count`: where it is in the pickle
    global,  ///< `data`: which
    tuple,   ///< `data` and `count`: where its items are
    list,    ///< `data`: which container
    dict,    ///< likewise; keys and values alternate
    storage, ///< `data`: the tuple that identifies it
    tensor   ///< `data`: the tuple of arguments; `count`: the function that makes it of them
};

using Index = std::uint32_t;

/// Something on the stack. Small, since a byte of a pickle can make one.
struct Value {
    Kind kind = Kind::opaque;
    Index count = 0;
    std::uint64_t data = 0;
};

/// Finds what `module.name` stands for.
[[nodiscard]] inline Value find_global(std::string_view module, std::string_view name) {
    const auto global = [](Global which, std::size_t type = 0) {
        return Value{Kind::global, static_cast<Index>(type), static_cast<std::uint64_t>(which)};
    };
    struct Known {
        std::string_view module, name;
        Global global;
    };
    static constexpr std::array<Known, 24> known{{
        {"collections", "OrderedDict", Global::ordered_dict},
        {"collections", "Counter", Global::counter},
        {"torch._utils", "_rebuild_tensor", Global::rebuild_tensor},
        {"torch._utils", "_rebuild_tensor_v2", Global::rebuild_tensor_v2},
        {"torch._utils", "_rebuild_tensor_v3", Global::rebuild_tensor_v3},
        {"torch._utils", "_rebuild_parameter", Global::rebuild_parameter},
        {"torch._utils", "_rebuild_parameter_with_state", Global::rebuild_parameter},
        {"torch._tensor", "_rebuild_from_type_v2", Global::rebuild_from_type},
        {"torch", "Tensor", Global::tensor_class},
        {"torch.nn.parameter", "Parameter", Global::tensor_class},
        {"torch", "Size", Global::size},
        {"torch", "device", Global::opaque},
        {"torch.serialization", "_get_layout", Global::opaque},
        {"_codecs", "encode", Global::opaque},
        {"builtins", "bytearray", Global::opaque},
        {"builtins", "complex", Global::opaque},
        {"builtins", "set", Global::opaque},
        {"__builtin__", "bytearray", Global::opaque},
        {"__builtin__", "complex", Global::opaque},
        {"__builtin__", "set", Global::opaque},
        {"torch", "UntypedStorage", Global::untyped_storage},
        {"torch.storage", "UntypedStorage", Global::untyped_storage},
        {"torch", "per_tensor_affine", Global::opaque},
        {"torch", "per_channel_affine", Global::opaque},
    }};
    for (const Known& item : known) {
        if (item.module == module && item.name == name) {
            return global(item.global);
        }
    }
    if (module == "torch") {
        for (std::size_t i = 0; i < element_types.size(); ++i) {
            if (element_types.at(i).dtype == name) {
                return global(Global::dtype, i);
            }
            if (!name.empty() && element_types.at(i).storage == name) {
                return global(Global::storage_class, i);
            }
        }
    }
    std::string full = std::string(module) + '.' + std::string(name);
    if (full.size() > max_name_size || !is_plain_text(full)) {
        full = "something unnamable";
    }
    throw ForeignObject("it refers to " + full + ", which is no part of weights");
}

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
        stack_.push_back(static_cast<Index>(values_.size()));
        values_.push_back(value);
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
        stack_.push_back(memo_[place]);
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
            stack_.push_back(args[0]);
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
            stack_.push_back(args[0]);
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
            marks_.push_back(stack_.size());
            return true;
        case 'N': // NONE
            stack_.push_back(0);
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
            stack_.push_back(0);
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

/// Takes the tensors out of what a machine has put together.
class Collector {
public:
    Collector(const Machine& machine, std::size_t pickle_size)
        : machine_(machine), visits_left_(2 * pickle_size + 1),
          tensors_left_(std::min(max_tensors, pickle_size / smallest_tensor)) {
        if (!machine.is(machine.result(), Kind::dict)) {
            throw std::invalid_argument("it holds no dictionary, such as a state_dict");
        }
        visit("", machine.result(), 0);
    }

    std::map<std::string, PickledTensor> tensors;

private:
    /// Bytes of a pickle that a tensor takes at least, when none comes often.
    static constexpr std::size_t smallest_tensor = 16;

    void visit(const std::string& name, Index index, std::size_t depth) {
        if (depth > max_depth) {
            throw std::invalid_argument("its dictionaries are too deep");
        }
        const Value& value = machine_.value(index);
        const bool container = holds_more(index) && value.kind != Kind::tensor;
        const std::size_t visits = 1 + (container ? machine_.items(index).size() : 0);
        if (visits > visits_left_) { // dictionaries of dictionaries that are all the same one
            throw std::invalid_argument("it repeats itself too often");
        }
        visits_left_ -= visits;
        if (value.kind == Kind::tensor) {
            add(name, value);
        } else if (value.kind == Kind::dict) {
            const auto items = machine_.items(index);
            std::set<std::tuple<Kind, std::string_view, std::int64_t>> keys;
            for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
                const Kind kind = machine_.value(items[i]).kind;
                const bool is_text = kind == Kind::text;
                if ((is_text || kind == Kind::integer) &&
                    !keys.emplace(kind, is_text ? machine_.text(items[i]) : std::string_view(),
                                  is_text ? 0 : machine_.integer(items[i]))
                         .second) {
                    throw std::invalid_argument('"' + name + "\" has a key twice");
                }
                visit_item(name, items[i], items[i + 1], depth);
            }
        } else if (value.kind == Kind::list || value.kind == Kind::tuple) {
            std::size_t place = 0;
            for (const Index item : machine_.items(index)) {
                if (holds_more(item)) {
                    visit(joined(name, std::to_string(place)), item, depth + 1);
                }
                ++place;
            }
        }
    }
    void visit_item(const std::string& name, Index key, Index item, std::size_t depth) {
        if (!holds_more(item)) {
            return;
        }
        if (machine_.is(key, Kind::text)) {
            visit(joined(name, machine_.text(key)), item, depth + 1);
        } else if (machine_.is(key, Kind::integer)) {
            visit(joined(name, std::to_string(machine_.integer(key))), item, depth + 1);
        } else {
            throw std::invalid_argument("\"" + name + "\" has a key that is no text or number");
        }
    }
    [[nodiscard]] bool holds_more(Index index) const {
        const Kind kind = machine_.value(index).kind;
        return kind == Kind::tensor || kind == Kind::dict || kind == Kind::list ||
               kind == Kind::tuple;
    }
    [[nodiscard]] static std::string joined(const std::string& name, std::string_view key) {
        if (name.size() + key.size() >= max_name_size) {
            throw std::invalid_argument("a name is longer than 512 bytes");
        }
        if (!is_plain_text(key)) {
            throw std::invalid_argument("a name has control characters or is not UTF-8");
        }
        return name.empty() ? std::string(key) : name + '.' + std::string(key);
    }

    void add(const std::string& name, const Value& value) {
        if (tensors_left_-- == 0) {
            throw std::invalid_argument("it has too many tensors");
        }
        if (!tensors.emplace(name, tensor(name, value)).second) {
            throw std::invalid_argument("two tensors are called \"" + name + "\"");
        }
    }
    [[nodiscard]] PickledTensor tensor(const std::string& name, const Value& value) const {
        const auto args = machine_.items(static_cast<Index>(value.data));
        const auto function = static_cast<Global>(value.count);
        const std::size_t required = function == Global::rebuild_tensor      ? 4
                                     : function == Global::rebuild_tensor_v2 ? 6
                                                                             : 7;
        const auto id = args.size() < required || !machine_.is(args[0], Kind::storage)
                            ? std::span<const Index>{}
                            : machine_.items(static_cast<Index>(machine_.value(args[0]).data));
        if (id.size() < 5 || machine_.text(id[0]) != "storage") {
            throw std::invalid_argument("\"" + name + "\" has no storage");
        }
        PickledTensor result;
        result.storage = machine_.text(id[2]);
        const bool plain =
            std::all_of(result.storage.begin(), result.storage.end(), [](unsigned char letter) {
                return ('0' <= letter && letter <= '9') || ('a' <= letter && letter <= 'z') ||
                       ('A' <= letter && letter <= 'Z') || letter == '_' || letter == '-';
            });
        if (result.storage.empty() || result.storage.size() > 64 || !plain) {
            throw std::invalid_argument("\"" + name + "\" has a storage of an impossible name");
        }
        const ElementType* type = nullptr;
        const auto storage_class = machine_.global(id[1]);
        if (function == Global::rebuild_tensor_v3) {
            if (storage_class == Global::untyped_storage &&
                machine_.global(args[6]) == Global::dtype) {
                type = &element_types.at(machine_.value(args[6]).count);
            }
        } else if (storage_class == Global::storage_class) {
            type = &element_types.at(machine_.value(id[1]).count);
        }
        if (type == nullptr) {
            throw std::invalid_argument("\"" + name + "\" has no type");
        }
        result.dtype = type->dtype;
        const std::int64_t count = machine_.integer(id[4]);
        const std::uint64_t unit = function == Global::rebuild_tensor_v3 ? 1 : type->size;
        constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (count < 0 || static_cast<std::uint64_t>(count) > limit / unit) {
            throw std::invalid_argument("\"" + name + "\" has a storage of an impossible size");
        }
        result.storage_bytes = static_cast<std::uint64_t>(count) * unit;
        result.offset = machine_.integer(args[1]);
        result.shape = integers(args[2]);
        result.strides = integers(args[3]);
        if (!fits(result, result.storage_bytes / type->size)) {
            throw std::invalid_argument("\"" + name + "\" reaches beyond its storage");
        }
        const std::size_t attributes = function == Global::rebuild_tensor_v3 ? 7 : 6;
        if (args.size() > attributes && machine_.is(args[attributes], Kind::dict)) {
            const auto items = machine_.items(args[attributes]);
            for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
                const bool set = machine_.of(items[i + 1], Kind::boolean).data != 0;
                (machine_.text(items[i]) == "conj" ? result.conjugate : result.negative) = set;
            }
        }
        return result;
    }
    [[nodiscard]] std::vector<std::int64_t> integers(Index index) const {
        const auto items = machine_.items(index);
        if (items.size() > max_rank) {
            throw std::invalid_argument("a tensor has more than 16 dimensions");
        }
        std::vector<std::int64_t> numbers;
        for (const Index item : items) {
            numbers.push_back(machine_.integer(item));
        }
        return numbers;
    }
    /// Whether every element lies in the storage, and no product of sizes overflows.
    [[nodiscard]] static bool fits(const PickledTensor& tensor, std::uint64_t elements) {
        constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (tensor.shape.size() != tensor.strides.size() || tensor.offset < 0 ||
            static_cast<std::uint64_t>(tensor.offset) > elements) {
            return false;
        }
        bool empty = false;
        std::uint64_t count = 16; // bytes of the largest element
        auto last = static_cast<std::uint64_t>(tensor.offset);
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            if (tensor.shape[i] < 0 || tensor.strides[i] < 0) {
                return false;
            }
            const auto size =
                static_cast<std::uint64_t>(std::max<std::int64_t>(tensor.shape[i], 1));
            const auto stride = static_cast<std::uint64_t>(tensor.strides[i]);
            if (count > limit / size || (stride > 0 && size - 1 > (limit - last) / stride)) {
                return false;
            }
            count *= size;
            last += (size - 1) * stride;
            empty = empty || tensor.shape[i] == 0;
        }
        return empty || last < elements;
    }

    const Machine& machine_;
    std::size_t visits_left_;
    std::size_t tensors_left_;
};

} // namespace pickle

/// The tensors of `data.pkl`, the pickle in a file of torch.save, by name. Dictionaries in
/// dictionaries, and lists, give names with dots: {"model": {"fc.weight": ...}} is
/// "model.fc.weight". What is no tensor is left out. Throws ForeignObject naming the first function
/// or class that is no part of weights, and std::invalid_argument saying what else is wrong.
[[nodiscard]] inline std::map<std::string, PickledTensor>
parse_pickled_tensors(std::span<const char> pickle) {
    const pickle::Machine machine(pickle);
    return std::move(pickle::Collector(machine, pickle.size()).tensors);
}

namespace pickle {

/// Puts a pickle together from instructions, as torch.load(weights_only=True) knows them.
class Writer {
public:
    std::string bytes{"\x80\x02", 2};

    void instruction(std::string_view code) { bytes += code; }
    void number(std::uint64_t value, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) {
            bytes += static_cast<char>(value >> (8 * i) & 0xFFU);
        }
    }
    void global(std::string_view module, std::string_view name) {
        bytes += 'c' + std::string(module) + '\n' + std::string(name) + '\n';
    }
    void text(std::string_view text) {
        bytes += 'X';
        number(text.size(), 4);
        bytes += text;
    }
    void integer(std::int64_t value) {
        if (0 <= value && value <= std::numeric_limits<std::int32_t>::max()) {
            bytes += 'J';
            number(static_cast<std::uint64_t>(value), 4);
        } else {
            bytes += "\x8a\x08";
            number(static_cast<std::uint64_t>(value), 8);
        }
    }
    void tuple(std::span<const std::int64_t> values) {
        bytes += '(';
        for (const std::int64_t value : values) {
            integer(value);
        }
        bytes += 't';
    }
};

} // namespace pickle

/// The pickle of an OrderedDict of these tensors. Throws std::invalid_argument for names and shapes
/// that parse_pickled_tensors() would not read.
[[nodiscard]] inline std::string make_pickle(const std::map<std::string, PickledTensor>& tensors) {
    pickle::Writer out;
    const auto empty_ordered_dict = [&] {
        out.global("collections", "OrderedDict");
        out.instruction(")R");
    };
    empty_ordered_dict();
    out.instruction("(");
    for (const auto& [name, tensor] : tensors) {
        if (name.size() > pickle::max_name_size || !is_plain_text(name)) {
            throw std::invalid_argument(
                "a name is longer than 512 bytes, has control characters or "
                "is not UTF-8");
        }
        if (tensor.shape.size() > pickle::max_rank) {
            throw std::invalid_argument('"' + name + "\" has more than 16 dimensions");
        }
        const auto* const type =
            std::find_if(pickle::element_types.begin(), pickle::element_types.end(),
                         [dtype = tensor.dtype](const auto& item) { return item.dtype == dtype; });
        const bool typed = !type->storage.empty();
        out.text(name);
        out.global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
        out.instruction("((");
        out.text("storage");
        typed ? out.global("torch", type->storage) : out.global("torch.storage", "UntypedStorage");
        out.text(tensor.storage);
        out.text("cpu");
        const std::uint64_t count = tensor.storage_bytes / (typed ? type->size : 1);
        out.integer(static_cast<std::int64_t>(count));
        out.instruction("tQ");
        out.integer(tensor.offset);
        out.tuple(tensor.shape);
        out.tuple(tensor.strides);
        out.instruction("\x89"); // requires no gradient
        empty_ordered_dict();    // no hooks
        if (!typed) {
            out.global("torch", type->dtype);
        }
        out.instruction("tR");
    }
    out.instruction("u.");
    if (out.bytes.size() > pickle::max_size || tensors.size() > pickle::max_tensors) {
        throw std::invalid_argument("there are too many tensors for one file");
    }
    return std::move(out.bytes);
}

} // namespace rtrain::checkpoint
