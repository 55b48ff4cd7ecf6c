// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values, functions and types that a pickle of weights may contain, and its size limits. Cost
/// tier 0: std only.
#pragma once

#include <rtrain/base/text/plain_text.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint {

/// A tensor as a view of a storage, which is a record in the file.
struct PickledTensor {
    /// The record, below "data/".
    std::string storage;
    /// Required size of the record.
    std::uint64_t storage_bytes = 0;
    /// Element type as Python names it, without "torch.".
    std::string_view dtype;
    /// In elements.
    std::int64_t offset = 0;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    bool conjugate = false;
    bool negative = false;
};

/// The pickle contains more than weights.
struct ForeignObject : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

namespace pickle {

inline constexpr std::size_t max_size = std::size_t{64} << 20U;
inline constexpr std::size_t max_values = std::size_t{4} << 20U;
inline constexpr std::size_t max_tensors = 1'000'000;
inline constexpr std::size_t max_rank = 16;
inline constexpr std::size_t max_depth = 64;
inline constexpr std::size_t max_marks = 10'000; // open simultaneously
inline constexpr std::size_t max_name_size = 512;

struct ElementType {
    std::string_view dtype;
    std::uint64_t size;
    /// The class of storages of this type; empty for newer types.
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

/// The functions and classes that a pickle may name.
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
    /// Creates something that is not a tensor and contains none, such as a device.
    opaque,
    /// A storage class; `Value::count` is its index in `element_types`.
    storage_class,
    untyped_storage,
    /// A dtype; `Value::count` as above.
    dtype,
};

enum class Kind : unsigned char {
    opaque, ///< null, a float, bytes, a device: does not name or create tensors
    boolean,
    integer,
    text,    ///< `data` and `count`: where it is in the pickle
    global,  ///< `data`: its Global
    tuple,   ///< `data` and `count`: where its items are
    list,    ///< `data`: index of the container
    dict,    ///< likewise; keys and values alternate
    storage, ///< `data`: the tuple that identifies it
    tensor   ///< `data`: the tuple of arguments; `count`: the function that creates it
};

using Index = std::uint32_t;

/// A value on the stack. Small, because a single byte of a pickle can create one.
struct Value {
    Kind kind = Kind::opaque;
    Index count = 0;
    std::uint64_t data = 0;
};

/// Resolves `module.name`.
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
        full = "a name that is not printable";
    }
    throw ForeignObject("it refers to " + full + ", which is not part of weights");
}

} // namespace pickle
} // namespace rtrain::checkpoint
