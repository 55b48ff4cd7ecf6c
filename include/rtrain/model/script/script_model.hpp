// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScriptModel: a network exported from Python as a model that C++ trains.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/strict_stream.hpp>
#include <rtrain/data/each_tensor.hpp>
#include <rtrain/model/forward.hpp>
#include <rtrain/model/prepared_model.hpp>
#include <rtrain/model/script/script_check.hpp>
#include <rtrain/model/script/script_errors.hpp>
#include <rtrain/model/script/script_file.hpp>
#include <rtrain/model/script/script_part.hpp>
#include <rtrain/model/script/values.hpp>
#include <rtrain/process/user_call.hpp>
#include <rtrain/storage/mapping.hpp>

#include <ATen/core/function.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <istream>
#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain {

namespace script {

/// Loads a program. Throws ModelError [RT-M80 to RT-M85, RT-M91].
[[nodiscard]] inline torch::jit::Module load(const std::filesystem::path& path) {
    require_file(path);
    require_script(storage::Mapping(path).bytes(), path.string());
    try {
        return torch::jit::load(path.string());
    } catch (const std::exception& error) {
        throw_not_loaded(path.string(), error.what());
    }
}
[[nodiscard]] inline torch::jit::Module load(std::istream& in) {
    const std::string name = "the stream";
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    require_script(bytes, name);
    try {
        auto text = rtrain::detail::strict(std::istringstream(std::move(bytes)));
        return torch::jit::load(text);
    } catch (const std::exception& error) {
        throw_not_loaded(name, error.what());
    }
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
    /// `file`: its name in messages.
    explicit ScriptModule(torch::jit::Module script, const std::string& file)
        : ScriptPart(checked(std::move(script), file)), has_buffers_(has_buffers()) {}

    /// Prints the class in Python and its modules.
    void pretty_print(std::ostream& stream) const override {
        stream << "ScriptModel(" << name() << ')';
    }

    /// Returns each parameter once, as in Python, for optimizers; named_parameters() has each name
    /// of tied ones.
    [[nodiscard]] std::vector<at::Tensor> parameters(bool recurse = true) const {
        std::vector<at::Tensor> distinct;
        std::unordered_set<const void*> known;
        for (const at::Tensor& parameter : torch::nn::Module::parameters(recurse)) {
            if (known.insert(parameter.unsafeGetTensorImpl()).second) {
                distinct.push_back(parameter);
            }
        }
        return distinct;
    }

    /// Used by the handle of a prepared model, which calls of method() go through.
    void set_prepared(const std::shared_ptr<rtrain::detail::PreparedModel>& prepared) {
        prepared_ = prepared;
    }

protected:
    /// Returns a method. Throws ModelError [RT-M88].
    [[nodiscard]] torch::jit::Function& find(const std::string& name) const {
        if (torch::jit::Function* const function = script().type()->findMethod(name)) {
            return *function;
        }
        std::vector<std::string> names;
        for (const auto& method : script().get_methods()) {
            names.push_back(method.name());
        }
        throw_no_method(name, names);
    }

    /// Calls a method. Throws ModelError [RT-M86, RT-M89].
    template <class... Values>
    [[nodiscard]] c10::IValue call(torch::jit::Function& function, Values&&... values) {
        Arguments arguments;
        arguments.stack.reserve(sizeof...(Values) + 1);
        arguments.stack.emplace_back(script()._ivalue());
        (arguments.add(std::forward<Values>(values)), ...);
        return run(function, arguments);
    }

    [[nodiscard]] std::shared_ptr<rtrain::detail::PreparedModel> prepared() const {
        return prepared_.lock();
    }

private:
    [[nodiscard]] static torch::jit::Module checked(torch::jit::Module script,
                                                    const std::string& file) {
        require_trainable(script, file);
        TiedTensors tied;
        for (const auto& module : script.modules()) {
            tied.tie(module);
        }
        return script;
    }

    [[nodiscard]] c10::IValue run(torch::jit::Function& function, Arguments& arguments) {
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
        } catch (const std::exception& error) {
            throw failure_of(function.name(), error.what(), hint(inputs));
        }
        if (has_buffers_) {
            follow_assignments();
        }
        return std::move(arguments.stack.front());
    }

    /// Makes integers floating-point numbers where the script takes these, as Python does.
    static void widen(const c10::FunctionSchema& schema, Arguments& arguments) {
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

    /// Explains a failure by tensors on another device than the parameters.
    [[nodiscard]] std::string hint(const std::vector<c10::IValue>& inputs) const {
        const auto all = parameters();
        for (const c10::IValue& input : inputs) {
            if (!all.empty() && input.isTensor() && input.toTensor().defined() &&
                input.toTensor().device() != all.front().device()) {
                return detail::concat("; the parameters are on ", all.front().device(),
                                      ", but an argument is on ", input.toTensor().device(),
                                      ": move it with .to(device), and network constants by "
                                      "making them buffers in Python");
            }
        }
        return "";
    }

    bool has_buffers_;
    std::weak_ptr<rtrain::detail::PreparedModel> prepared_;
};

} // namespace script

/// The module in a ScriptModel.
template <script::Result R>
class ScriptModelImpl : public script::ScriptModule {
public:
    /// `file`: its name in messages. Throws ModelError [RT-M82, RT-M85, RT-M87, RT-M91].
    explicit ScriptModelImpl(torch::jit::Module module, const std::string& file = "the module")
        : script::ScriptModule(std::move(module), file),
          forward_(this->script().type()->findMethod("forward")) {
        if (forward_ != nullptr) {
            const c10::Type& type = *forward_->getSchema().returns().front().type();
            if (!script::may_fit<R>(type)) {
                script::throw_does_not_fit("forward", type, script::Value<R>::name());
            }
        }
    }

    /// Runs the script's forward. Throws ModelError: RT-M86 wrong arguments, RT-M87 the result has
    /// a different type, RT-M88 it has no forward, RT-M89 the script failed.
    template <class... Arguments>
    R forward(Arguments&&... arguments) {
        return script::take<R>(call(forward_ != nullptr ? *forward_ : find("forward"),
                                    std::forward<Arguments>(arguments)...),
                               "forward");
    }

    /// Runs another method that Python exports (`@torch.jit.export`). On a prepared model, buffers,
    /// autocast and join() are as in a call of its handle. Throws like forward().
    ///
    /// @code
    /// auto code = model->method("encode", x);
    /// auto sizes = model->method<std::vector<std::int64_t>>("sizes");
    /// @endcode
    template <script::Result Other = R, class... Arguments>
    Other method(const std::string& name, Arguments&&... arguments) {
        torch::jit::Function& function = find(name);
        const auto run = [&] {
            return script::take<Other>(call(function, std::forward<Arguments>(arguments)...), name);
        };
        const auto prepared = this->prepared();
        if (!prepared) {
            return run();
        }
        const UserCall::In in(UserCall::forward, prepared->next_pass());
        prepared->begin_forward();
        Other output = [&] {
            try {
                return detail::run_forward(prepared->options().autocast, *this, run);
            } catch (...) {
                prepared->explain_failure();
                throw;
            }
        }();
        detail::each_tensor(output,
                            [&](const at::Tensor& tensor) { prepared->end_forward(tensor); });
        return output;
    }

private:
    torch::jit::Function* forward_;
};

/// A network that Python exported with torch.jit.script or torch.jit.trace, as a model: prepare()
/// it, and train it like a module of torch::nn. Guide: docs/python-models.md
///
/// Its parameters and buffers are the script's own tensors, under the names of Python's
/// state_dict(). It begins in the mode in which it was exported, module by module, as in Python.
/// Copies share the network; a file that is loaded twice gives two.
///
/// `R`: the type of what forward returns: torch::Tensor, a number, std::string, std::optional,
/// std::vector, std::map, std::tuple of these, or torch::jit::IValue.
///
/// @code
/// auto model = worker.prepare(rtrain::ScriptModel("net.pt"));
/// auto output = model(x, rtrain::named("scale", 2.0));
/// @endcode
template <script::Result R = at::Tensor>
class ScriptModel : public torch::nn::ModuleHolder<ScriptModelImpl<R>> {
    using Impl = ScriptModelImpl<R>;

public:
    /// Throws ModelError: RT-M80 no such file, RT-M81 it is not a TorchScript program, RT-M82
    /// libtorch cannot load it, RT-M83 it uses an unknown operator, RT-M84 it is of a newer
    /// PyTorch, RT-M85 it is frozen, RT-M87 forward returns a different type, RT-M91 it is
    /// quantized. Warns [RT-M90] of a mode that tracing has fixed.
    explicit ScriptModel(const std::filesystem::path& file)
        : ScriptModel(std::make_shared<Impl>(script::load(file), file.string())) {}
    /// Reads a program from the stream's position to its end. Throws like the other.
    explicit ScriptModel(std::istream& in)
        : ScriptModel(std::make_shared<Impl>(script::load(in), "the stream")) {}
    /// Shares the module's tensors.
    explicit ScriptModel(torch::jit::Module module)
        : ScriptModel(std::make_shared<Impl>(std::move(module))) {}
    /// Shares the model.
    explicit ScriptModel(std::shared_ptr<Impl> module)
        : torch::nn::ModuleHolder<Impl>(std::move(module)) {}

    /// Runs the script's forward.
    template <class... Arguments>
    R operator()(Arguments&&... arguments) {
        return (*this)->forward(std::forward<Arguments>(arguments)...);
    }
};

} // namespace rtrain
