// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes a pickle that describes tensors, readable by torch.load(weights_only=True). Cost tier 0:
/// std only.
#pragma once

#include <rtrain/format/pickle/pickle_values.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::checkpoint {
namespace pickle {

/// Builds a pickle from the instructions that torch.load(weights_only=True) accepts.
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

/// Returns the pickle of an OrderedDict of these tensors. Throws std::invalid_argument for names
/// and shapes that parse_pickled_tensors() would reject.
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
