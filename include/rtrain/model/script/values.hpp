// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values between C++ and TorchScript: arguments of any common type become IValues, and results
/// become the C++ type that the caller names.
#pragma once

#include <rtrain/base/type_name.hpp>
#include <rtrain/data/batch/each_tensor.hpp>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain {

namespace script {

template <class T>
struct Value;

/// Types that a script takes and returns.
template <class T>
concept Convertible = requires {
    sizeof(Value<std::remove_cvref_t<T>>);
};

/// A type of which c10::IValue holds exactly one kind: `Held` in TorchScript.
#define RTRAIN_SCRIPT_VALUE(Cpp, Native, Held, Is, To, Name)                                       \
    template <>                                                                                    \
    struct Value<Cpp> {                                                                            \
        static c10::TypePtr type() { return c10::Held::get(); }                                    \
        static bool fits(const c10::Type& type) { return type.kind() == c10::Held::Kind; }         \
        static bool holds(const c10::IValue& value) { return value.Is(); }                         \
        static Cpp take(c10::IValue&& value) { return Cpp(std::move(value).To()); }                \
        static c10::IValue make(const Cpp& value) { return Native(value); }                        \
        static std::string name() { return Name; }                                                 \
    };
RTRAIN_SCRIPT_VALUE(at::Tensor, at::Tensor, TensorType, isTensor, toTensor, "torch::Tensor")
RTRAIN_SCRIPT_VALUE(bool, bool, BoolType, isBool, toBool, "bool")
RTRAIN_SCRIPT_VALUE(std::int64_t, std::int64_t, IntType, isInt, toInt, "std::int64_t")
RTRAIN_SCRIPT_VALUE(double, double, FloatType, isDouble, toDouble, "double")
RTRAIN_SCRIPT_VALUE(std::string, std::string, StringType, isString, toStringRef, "std::string")
RTRAIN_SCRIPT_VALUE(c10::Device, c10::Device, DeviceObjType, isDevice, toDevice, "torch::Device")
#undef RTRAIN_SCRIPT_VALUE

/// Other integers and floating-point numbers.
template <class T>
requires std::is_arithmetic_v<T>
struct Value<T> {
    using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    static c10::TypePtr type() { return Value<Wide>::type(); }
    static bool fits(const c10::Type& type) { return Value<Wide>::fits(type); }
    static bool holds(const c10::IValue& value) { return Value<Wide>::holds(value); }
    static T take(c10::IValue&& value) {
        return static_cast<T>(Value<Wide>::take(std::move(value)));
    }
    static c10::IValue make(T value) { return static_cast<Wide>(value); }
    static std::string name() { return detail::type_name<T>(); }
};

/// Text that is not a std::string; an argument only.
template <class T>
requires(std::convertible_to<T, std::string_view> &&
         !std::same_as<T, std::string>) struct Value<T> {
    static c10::TypePtr type() { return c10::StringType::get(); }
    static c10::IValue make(std::string_view value) { return std::string(value); }
};

/// A value of any type.
template <>
struct Value<c10::IValue> {
    static c10::TypePtr type() { return c10::AnyType::get(); }
    static bool fits(const c10::Type& /*type*/) { return true; }
    static bool holds(const c10::IValue& /*value*/) { return true; }
    static c10::IValue take(c10::IValue&& value) { return std::move(value); }
    static c10::IValue make(const c10::IValue& value) { return value; }
    static std::string name() { return "torch::jit::IValue"; }
};

/// None, as an argument.
template <>
struct Value<std::nullopt_t> {
    static c10::TypePtr type() { return c10::NoneType::get(); }
    static c10::IValue make(std::nullopt_t /*none*/) { return {}; }
};

template <class T>
struct Value<std::optional<T>> {
    static c10::TypePtr type() { return c10::OptionalType::create(Value<T>::type()); }
    static bool fits(const c10::Type& type) {
        if (const auto* const optional = type.castRaw<c10::OptionalType>()) {
            return Value<T>::fits(*optional->getElementType());
        }
        return type.kind() == c10::NoneType::Kind || Value<T>::fits(type);
    }
    static bool holds(const c10::IValue& value) { return value.isNone() || Value<T>::holds(value); }
    static std::optional<T> take(c10::IValue&& value) {
        return value.isNone() ? std::nullopt : std::optional<T>(Value<T>::take(std::move(value)));
    }
    static c10::IValue make(const std::optional<T>& value) {
        return value ? Value<T>::make(*value) : c10::IValue();
    }
    static std::string name() { return "std::optional<" + Value<T>::name() + '>'; }
};

template <class T>
struct Value<std::vector<T>> {
    static c10::TypePtr type() { return c10::ListType::create(Value<T>::type()); }
    static bool fits(const c10::Type& type) {
        const auto* const list = type.castRaw<c10::ListType>();
        return list != nullptr && Value<T>::fits(*list->getElementType());
    }
    static bool holds(const c10::IValue& value) {
        if (!value.isList()) {
            return false;
        }
        for (const c10::IValue& element : value.toList().vec()) {
            if (!Value<T>::holds(element)) {
                return false;
            }
        }
        return true;
    }
    static std::vector<T> take(c10::IValue&& value) {
        std::vector<T> all;
        for (c10::IValue& element : value.toList().vec()) {
            all.push_back(Value<T>::take(std::move(element)));
        }
        return all;
    }
    static c10::IValue make(const std::vector<T>& values) {
        c10::impl::GenericList list(Value<T>::type());
        for (const auto& value : values) {
            list.push_back(Value<T>::make(value));
        }
        return list;
    }
    static std::string name() { return "std::vector<" + Value<T>::name() + '>'; }
};

/// A dictionary as a std::map or a std::unordered_map.
template <class Map>
struct MapValue {
    using Key = typename Map::key_type;
    using Mapped = typename Map::mapped_type;
    static c10::TypePtr type() {
        return c10::DictType::create(Value<Key>::type(), Value<Mapped>::type());
    }
    static bool fits(const c10::Type& type) {
        const auto* const dict = type.castRaw<c10::DictType>();
        return dict != nullptr && Value<Key>::fits(*dict->getKeyType()) &&
               Value<Mapped>::fits(*dict->getValueType());
    }
    static bool holds(const c10::IValue& value) {
        if (!value.isGenericDict()) {
            return false;
        }
        for (const auto& item : value.toGenericDict()) {
            if (!Value<Key>::holds(item.key()) || !Value<Mapped>::holds(item.value())) {
                return false;
            }
        }
        return true;
    }
    static Map take(c10::IValue&& value) {
        Map all;
        for (const auto& item : value.toGenericDict()) {
            all.emplace(Value<Key>::take(c10::IValue(item.key())),
                        Value<Mapped>::take(c10::IValue(item.value())));
        }
        return all;
    }
    static c10::IValue make(const Map& values) {
        c10::impl::GenericDict dict(Value<Key>::type(), Value<Mapped>::type());
        for (const auto& [key, value] : values) {
            dict.insert(Value<Key>::make(key), Value<Mapped>::make(value));
        }
        return dict;
    }
    static std::string name() {
        return "std::map<" + Value<Key>::name() + ", " + Value<Mapped>::name() + '>';
    }
};
template <class K, class V>
struct Value<std::map<K, V>> : MapValue<std::map<K, V>> {};
template <class K, class V>
struct Value<std::unordered_map<K, V>> : MapValue<std::unordered_map<K, V>> {};

/// A std::tuple, pair or array as a tuple.
template <class Tuple, class... Elements>
struct TupleValue {
    static c10::TypePtr type() { return c10::TupleType::create({Value<Elements>::type()...}); }
    static bool fits(const c10::Type& type) {
        const auto* const tuple = type.castRaw<c10::TupleType>();
        if (tuple == nullptr || tuple->elements().size() != sizeof...(Elements)) {
            return false;
        }
        std::size_t next = 0;
        return (Value<Elements>::fits(*tuple->elements()[next++]) && ...);
    }
    static bool holds(const c10::IValue& value) {
        if (!value.isTuple() || value.toTupleRef().elements().size() != sizeof...(Elements)) {
            return false;
        }
        std::size_t next = 0;
        return (Value<Elements>::holds(value.toTupleRef().elements()[next++]) && ...);
    }
    static Tuple take(c10::IValue&& value) {
        const auto& elements = value.toTupleRef().elements();
        return [&]<std::size_t... Places>(std::index_sequence<Places...>) {
            return Tuple{Value<Elements>::take(c10::IValue(elements[Places]))...};
        }
        (std::index_sequence_for<Elements...>());
    }
    static c10::IValue make(const Tuple& values) {
        return std::apply(
            [](const auto&... all) {
                return c10::ivalue::Tuple::create(
                    std::vector<c10::IValue>{Value<Elements>::make(all)...});
            },
            values);
    }
    static std::string name() {
        std::string text;
        ((text += (text.empty() ? "std::tuple<" : ", ") + Value<Elements>::name()), ...);
        return text + '>';
    }
};
template <class... Elements>
struct Value<std::tuple<Elements...>> : TupleValue<std::tuple<Elements...>, Elements...> {};
template <class A, class B>
struct Value<std::pair<A, B>> : TupleValue<std::pair<A, B>, A, B> {};

/// Types of results.
template <class T>
concept Result = Convertible<T> && requires(c10::IValue value) {
    { Value<T>::take(std::move(value)) } -> std::same_as<T>;
};

/// Visits the tensors in a value, also in lists, tuples and dictionaries; they may be replaced.
template <class Visit>
void each_tensor_of(c10::IValue& value, const Visit& visit) {
    if (value.isTensor()) {
        at::Tensor tensor = value.toTensor();
        visit(tensor);
        value = std::move(tensor);
    } else if (value.isTuple()) {
        std::vector<c10::IValue> elements = value.toTupleRef().elements().vec();
        for (c10::IValue& element : elements) {
            each_tensor_of(element, visit);
        }
        value = c10::ivalue::Tuple::create(std::move(elements));
    } else if (value.isList()) {
        auto list = value.toList();
        for (std::size_t i = 0; i < list.size(); ++i) {
            c10::IValue element = list.get(i);
            each_tensor_of(element, visit);
            list.set(i, std::move(element));
        }
    } else if (value.isGenericDict()) {
        for (const auto& item : value.toGenericDict()) {
            c10::IValue element = item.value();
            each_tensor_of(element, visit);
            item.setValue(std::move(element));
        }
    }
}

} // namespace script

namespace detail {

/// Results that are IValues.
template <>
struct TensorsWithin<c10::IValue> {
    template <class Visit>
    static void visit(c10::IValue& value, const Visit& visit) {
        script::each_tensor_of(value, visit);
    }
};

} // namespace detail
} // namespace rtrain
