// SPDX-License-Identifier: Apache-2.0
/// @file
/// The door of ScriptModel: loads a program, and calls its methods, without the type of the result.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/model/script/named_argument.hpp>
#include <rtrain/model/script/script_part.hpp>
#include <rtrain/model/script/values.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/function.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/module.h>

#include <concepts>
#include <filesystem>
#include <istream>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::script {

/// Loads a program, onto the CPU. Throws ModelError [RT-M80 to RT-M84].
[[nodiscard]] torch::jit::Module load(const std::filesystem::path& path);
[[nodiscard]] torch::jit::Module load(std::istream& in);

/// Throws ModelError [RT-M87].
[[noreturn]] void throw_does_not_fit(const std::string& method, const c10::Type& type,
                                     const std::string& result);

/// Throws ModelError [RT-M87] if the schema says that the result has a different type. Types that
/// it leaves open (Any, unions) are checked in each value.
template <Result T>
void require_fits(const std::string& method, const c10::Type& type) {
    if (type.kind() != c10::AnyType::Kind && type.kind() != c10::UnionType::Kind &&
        !Value<T>::fits(type)) {
        throw_does_not_fit(method, type, Value<T>::name());
    }
}

/// Converts a result. Throws ModelError [RT-M87].
template <Result T>
[[nodiscard]] T take(c10::IValue&& value, const std::string& method) {
    if (!Value<T>::holds(value)) {
        throw_does_not_fit(method, *value.type(), Value<T>::name());
    }
    return Value<T>::take(std::move(value));
}

/// The arguments of one call.
struct Arguments {
    std::vector<c10::IValue> stack; ///< the module, then what has no name
    std::unordered_map<std::string, c10::IValue> named;

    template <class T>
    void add(T&& value) {
        using Plain = std::remove_cvref_t<T>;
        if constexpr (std::same_as<Plain, NamedArgument>) {
            named.insert_or_assign(value.name, value.value);
        } else {
            static_assert(Convertible<Plain>,
                          "a script takes tensors, numbers, strings, lists, dictionaries, tuples "
                          "and torch::jit::IValue [RT-M86]");
            stack.push_back(Value<Plain>::make(value));
        }
    }
};

/// A script that can be called, without the type of its result.
class ScriptModule : public ScriptPart {
public:
    /// `file`: its name in messages. Throws ModelError [RT-M82, RT-M85, RT-M91].
    ScriptModule(torch::jit::Module script, const std::string& file);

    /// Prints the class in Python.
    void pretty_print(std::ostream& stream) const override;

    /// Returns each parameter once, as in Python, for optimizers; named_parameters() has each name
    /// of tied ones.
    [[nodiscard]] std::vector<at::Tensor> parameters(bool recurse = true) const;

    /// Called by the handle of a prepared model: method() then runs like a call of the handle.
    void set_prepared(const std::shared_ptr<rtrain::detail::PreparedModel>& prepared) {
        prepared_ = prepared;
    }

protected:
    /// Returns a method. Throws ModelError [RT-M88].
    [[nodiscard]] torch::jit::Function& find(const std::string& name) const;

    /// Calls a method. Throws ModelError [RT-M86, RT-M89].
    template <class... Values>
    [[nodiscard]] c10::IValue call(torch::jit::Function& function, Values&&... values) {
        Arguments arguments;
        arguments.stack.reserve(sizeof...(Values) + 1);
        arguments.stack.emplace_back(script()._ivalue());
        (arguments.add(std::forward<Values>(values)), ...);
        return run(function, std::move(arguments));
    }

    [[nodiscard]] std::shared_ptr<rtrain::detail::PreparedModel> prepared() const {
        return prepared_.lock();
    }

private:
    [[nodiscard]] c10::IValue run(torch::jit::Function& function, Arguments&& arguments);
    [[nodiscard]] std::string hint(const std::vector<c10::IValue>& inputs) const;

    bool has_buffers_;
    std::weak_ptr<rtrain::detail::PreparedModel> prepared_;
};

} // namespace rtrain::script

#ifndef RTRAIN_COMPILED
#include <rtrain/model/script/script_module_definitions.hpp>
#endif
