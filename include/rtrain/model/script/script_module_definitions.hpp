// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door script_module.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/model/script/script_check.hpp>
#include <rtrain/model/script/script_errors.hpp>
#include <rtrain/model/script/script_file.hpp>
#include <rtrain/model/script/script_module.hpp>
#include <rtrain/model/script/tied_tensors.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <ATen/core/function_schema.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <sstream>
#include <unordered_set>

namespace rtrain::script {

RTRAIN_DOOR torch::jit::Module load(const std::filesystem::path& path) {
    require_file(path);
    require_script(storage::Mapping(path).bytes(), path.string());
    try {
        return torch::jit::load(path.string(), at::kCPU);
    } catch (const std::exception& error) {
        throw_not_loaded(path.string(), error.what());
    }
}
RTRAIN_DOOR torch::jit::Module load(std::istream& in) {
    const std::string name = "the stream";
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    require_script(bytes, name);
    try {
        auto text = detail::strict(std::istringstream(std::move(bytes)));
        return torch::jit::load(text, at::kCPU);
    } catch (const std::exception& error) {
        throw_not_loaded(name, error.what());
    }
}

/// The C++ type for a type of TorchScript.
[[nodiscard]] inline std::string cpp_name(const c10::Type& type) {
    std::string text;
    switch (type.kind()) {
    case c10::TypeKind::TensorType:
        return Value<at::Tensor>::name();
    case c10::TypeKind::IntType:
        return Value<std::int64_t>::name();
    case c10::TypeKind::FloatType:
        return Value<double>::name();
    case c10::TypeKind::BoolType:
        return Value<bool>::name();
    case c10::TypeKind::StringType:
        return Value<std::string>::name();
    case c10::TypeKind::OptionalType:
        return "std::optional<" + cpp_name(*type.containedType(0)) + '>';
    case c10::TypeKind::ListType:
        return "std::vector<" + cpp_name(*type.containedType(0)) + '>';
    case c10::TypeKind::DictType:
        return "std::map<" + cpp_name(*type.containedType(0)) + ", " +
               cpp_name(*type.containedType(1)) + '>';
    case c10::TypeKind::TupleType:
        for (const auto& element : type.containedTypes()) {
            text += (text.empty() ? "std::tuple<" : ", ") + cpp_name(*element);
        }
        return text + '>';
    default:
        return Value<c10::IValue>::name();
    }
}

RTRAIN_DOOR void throw_does_not_fit(const std::string& method, const c10::Type& type,
                                    const std::string& result) {
    throw ModelError("RT-M87",
                     detail::concat(method, "() of the script returns ", type.repr_str(),
                                    ", but the program expects ", result, "; use ", cpp_name(type),
                                    " or torch::jit::IValue: ScriptModel<", cpp_name(type),
                                    ">, or method<", cpp_name(type), ">(...)"));
}

/// Makes integers floating-point numbers where the script takes these, as Python does.
inline void widen(const c10::FunctionSchema& schema, Arguments& arguments) {
    const auto widen_one = [](const c10::Argument& declared, c10::IValue& value) {
        if (value.isInt() && declared.type()->kind() == c10::FloatType::Kind) {
            value = static_cast<double>(value.toInt());
        }
    };
    const auto& all = schema.arguments();
    for (std::size_t i = 1; i < std::min(all.size(), arguments.stack.size()); ++i) {
        widen_one(all[i], arguments.stack[i]);
    }
    for (auto& [name, value] : arguments.named) {
        if (const auto place = schema.argumentIndexWithName(name)) {
            widen_one(all[static_cast<std::size_t>(*place)], value);
        }
    }
}

/// Checks a program, and makes tied tensors one.
[[nodiscard]] inline torch::jit::Module checked(torch::jit::Module script,
                                                const std::string& file) {
    require_trainable(script, file);
    TiedTensors tied;
    for (const auto& module : script.modules()) {
        tied.tie(module);
    }
    return script;
}

RTRAIN_DOOR ScriptModule::ScriptModule(torch::jit::Module script, const std::string& file)
    : ScriptPart(checked(std::move(script), file)), has_buffers_(has_buffers()) {}

RTRAIN_DOOR void ScriptModule::pretty_print(std::ostream& stream) const {
    stream << "ScriptModel(" << name() << ')';
}

RTRAIN_DOOR std::vector<at::Tensor> ScriptModule::parameters(bool recurse) const {
    std::vector<at::Tensor> distinct;
    std::unordered_set<const void*> known;
    for (const at::Tensor& parameter : torch::nn::Module::parameters(recurse)) {
        if (known.insert(parameter.unsafeGetTensorImpl()).second) {
            distinct.push_back(parameter);
        }
    }
    return distinct;
}

RTRAIN_DOOR torch::jit::Function& ScriptModule::find(const std::string& name) const {
    if (torch::jit::Function* const function = script().type()->findMethod(name)) {
        return *function;
    }
    std::vector<std::string> names;
    for (const auto& method : script().get_methods()) {
        names.push_back(method.name());
    }
    throw_no_method(name, names);
}

RTRAIN_DOOR c10::IValue ScriptModule::run(torch::jit::Function& function, Arguments&& arguments) {
    const c10::FunctionSchema& schema = function.getSchema();
    widen(schema, arguments);
    try {
        schema.checkAndNormalizeInputs(arguments.stack, arguments.named);
    } catch (const std::exception& error) {
        throw_wrong_arguments(schema, error.what());
    }
    const auto inputs = arguments.stack; // for hint()
    try {
        function.run(arguments.stack);
    } catch (const Error&) {
        throw;
    } catch (const c10::OutOfMemoryError&) {
        throw;
    } catch (const std::exception& error) {
        throw failure_of(function.name(), error.what(), hint(inputs));
    }
    if (has_buffers_) {
        follow_assignments();
    }
    return std::move(arguments.stack.front());
}

/// Explains a failure by tensors on a different device than the parameters.
RTRAIN_DOOR std::string ScriptModule::hint(const std::vector<c10::IValue>& inputs) const {
    const auto all = parameters();
    for (const c10::IValue& input : inputs) {
        if (!all.empty() && input.isTensor() && input.toTensor().defined() &&
            input.toTensor().device() != all.front().device()) {
            return detail::concat("; the parameters are on ", all.front().device(),
                                  ", but an argument is on ", input.toTensor().device(),
                                  ": move the argument with .to(device), and constants of the "
                                  "network by making them buffers in Python");
        }
    }
    return "";
}

} // namespace rtrain::script
