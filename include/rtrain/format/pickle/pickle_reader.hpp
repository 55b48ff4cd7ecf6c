// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the tensors described by a pickle from torch.save. Python's pickle is a program that may
/// call anything; this reader calls nothing. Like torch.load(weights_only=True), it supports the
/// instructions and the few functions that weights consist of, and only records them. A pickle that
/// names any other function or class is rejected with that name in the message.
///
/// Limits: 64 MiB, 4 million values, a million tensors, 16 dimensions, dictionaries nested 64 deep,
/// names of 512 bytes; so it never uses more than 512 MiB, and usually far less. Cost tier 0: std
/// only.
/// part. Cost tier 0: std only.
#pragma once

#include <rtrain/format/pickle/pickle_machine.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {
namespace pickle {

/// Collects the tensors from the values that a machine has built.
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
    /// Minimum bytes of a pickle per tensor, unless tensors are repeated.
    static constexpr std::size_t smallest_tensor = 16;

    void visit(const std::string& name, Index index, std::size_t depth) {
        if (depth > max_depth) {
            throw std::invalid_argument("its dictionaries are nested too deeply");
        }
        const Value& value = machine_.value(index);
        const bool container = holds_more(index) && value.kind != Kind::tensor;
        const std::size_t visits = 1 + (container ? machine_.items(index).size() : 0);
        if (visits > visits_left_) { // nested references to the same dictionary
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
                    throw std::invalid_argument('"' + name + "\" has a duplicate key");
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
            throw std::invalid_argument("\"" + name +
                                        "\" has a key that is not a string or number");
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
            throw std::invalid_argument("\"" + name + "\" has a storage with an invalid name");
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
            throw std::invalid_argument("\"" + name + "\" has a storage with an invalid size");
        }
        result.storage_bytes = static_cast<std::uint64_t>(count) * unit;
        result.offset = machine_.integer(args[1]);
        result.shape = integers(args[2]);
        result.strides = integers(args[3]);
        if (!fits(result, result.storage_bytes / type->size)) {
            throw std::invalid_argument("\"" + name + "\" extends beyond its storage");
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
    /// True if every element is inside the storage and no product of sizes overflows.
    [[nodiscard]] static bool fits(const PickledTensor& tensor, std::uint64_t elements) {
        constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (tensor.shape.size() != tensor.strides.size() || tensor.offset < 0 ||
            static_cast<std::uint64_t>(tensor.offset) > elements) {
            return false;
        }
        bool empty = false;
        std::uint64_t count = 16; // size of the largest element type
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

/// Returns the tensors of `data.pkl`, the pickle in a file of torch.save, by name. Nested
/// dictionaries and lists give dotted names: {"model": {"fc.weight": ...}} is "model.fc.weight".
/// Values that are not tensors are ignored. Throws ForeignObject naming the first function or class
/// that weights do not need, and std::invalid_argument with the cause for other errors.
[[nodiscard]] inline std::map<std::string, PickledTensor>
parse_pickled_tensors(std::span<const char> pickle) {
    const pickle::Machine machine(pickle);
    return std::move(pickle::Collector(machine, pickle.size()).tensors);
}

} // namespace rtrain::checkpoint
