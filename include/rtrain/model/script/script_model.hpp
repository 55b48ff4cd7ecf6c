// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScriptModel: a network exported from Python as a model that C++ trains.
#pragma once

#include <rtrain/data/batch/each_tensor.hpp>
#include <rtrain/model/ddp/prepared_call.hpp>
#include <rtrain/model/script/named_argument.hpp>
#include <rtrain/model/script/script_module.hpp>
#include <rtrain/model/script/values.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/pimpl.h>

#include <filesystem>
#include <istream>
#include <memory>
#include <string>
#include <utility>

namespace rtrain {

/// The module in a ScriptModel.
template <script::Result R>
class ScriptModelImpl : public script::ScriptModule {
public:
    /// `file`: its name in messages. Throws ModelError [RT-M82, RT-M85, RT-M87, RT-M91].
    explicit ScriptModelImpl(torch::jit::Module module, const std::string& file = "the module")
        : script::ScriptModule(std::move(module), file),
          forward_(this->script().type()->findMethod("forward")) {
        if (forward_ != nullptr) {
            script::require_fits<R>("forward", *forward_->getSchema().returns().front().type());
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
        return detail::call_prepared(*prepared, *this, run, [&](Other& output) {
            detail::each_tensor(output,
                                [&](const at::Tensor& tensor) { prepared->end_forward(tensor); });
        });
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
