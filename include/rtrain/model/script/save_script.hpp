// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes a trained script for Python and C++: the original program, with its code and constants
/// unchanged, and the trained weights.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/pieces.hpp>
#include <rtrain/checkpoint/state_files.hpp>
#include <rtrain/checkpoint/verify.hpp>
#include <rtrain/model/script/script_model.hpp>
#include <rtrain/storage/file.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/serialization/export.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

/// Options of save_script().
struct SaveScriptOptions {
    /// Write the program in evaluation mode, whatever mode the model is in.
    bool evaluation = false;
};

namespace script {

/// A ScriptModel, its module, or a handle of one.
template <class M>
concept Scripted = std::derived_from<M, ScriptModule> || requires(const M& model) {
    { *model } -> std::convertible_to<const ScriptModule&>;
};

/// Copies a script with its tensors, each into its own memory. Tied ones stay tied.
[[nodiscard]] inline torch::jit::Module copy_of(const torch::jit::Module& module) {
    const c10::NoGradGuard no_grad;
    torch::jit::Module copy = module.deepcopy();
    const auto parameters = module.parameters();
    auto original = parameters.begin();
    for (const at::Tensor& parameter : copy.parameters()) {
        parameter.set_requires_grad((*original).requires_grad());
        ++original;
    }
    return copy;
}

/// True if each tensor's memory holds nothing else. libtorch writes the whole memory.
[[nodiscard]] inline bool owns_its_memory(const torch::jit::Module& module) {
    const auto owns = [](const at::Tensor& tensor) {
        return !tensor.has_storage() || tensor.storage().nbytes() == tensor.nbytes();
    };
    for (const at::Tensor& parameter : module.parameters()) {
        if (!owns(parameter)) {
            return false;
        }
    }
    for (const at::Tensor& buffer : module.buffers()) {
        if (!owns(buffer)) {
            return false;
        }
    }
    return true;
}

/// Writes the program; a crash or an error leaves the old file.
inline void write(const torch::jit::Module& module, const std::filesystem::path& path) {
    storage::replace_file_by(path, [&](storage::OutputFile& file) {
        std::exception_ptr failure; // not thrown through libtorch
        const auto write = [&](const void* data, std::size_t bytes) {
            try {
                if (!failure) {
                    file.write(data, bytes);
                    return bytes;
                }
            } catch (...) {
                failure = std::current_exception();
            }
            return std::size_t{0};
        };
        try {
            torch::jit::ExportModule(module, write);
        } catch (...) {
            if (!failure) {
                throw;
            }
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
    });
}

inline void save(const torch::jit::Module& module, const std::filesystem::path& path,
                 const SaveScriptOptions& options) {
    const bool changes_mode = options.evaluation;
    torch::jit::Module whole = changes_mode || !owns_its_memory(module) ? copy_of(module) : module;
    if (changes_mode) {
        whole.eval();
    }
    write(whole, path);
}

/// Finds the part of a checkpoint that holds all tensors of the model, by its prefix. Throws
/// ModelError [RT-M92].
[[nodiscard]] inline std::string part_for(const ScriptModule& model,
                                          const checkpoint::safetensors::Tensors& tensors,
                                          const std::string& checkpoint) {
    std::string missing;
    const auto names = model.named_parameters();
    for (const auto& [name, tensor] : tensors) {
        const auto slash = name.find('/');
        if (names.is_empty() || slash == std::string::npos ||
            name.substr(slash + 1) != names.front().key()) {
            continue;
        }
        const std::string prefix = name.substr(0, slash + 1);
        const auto lacking = std::find_if(names.begin(), names.end(), [&](const auto& item) {
            return !tensors.contains(prefix + item.key());
        });
        if (lacking == names.end()) {
            return prefix;
        }
        missing = lacking->key();
    }
    throw ModelError(
        "RT-M92",
        detail::concat(checkpoint, " has no model with the parameters of the program: ",
                       missing.empty() ? names.is_empty() ? "" : names.front().key() : missing,
                       " is missing; pass the program that was trained"));
}

/// Copies the tensors of one part of a checkpoint into the model.
inline void fill(ScriptModule& model, const checkpoint::safetensors::Tensors& tensors,
                 const std::string& prefix) {
    const c10::NoGradGuard no_grad;
    auto targets = model.named_parameters();
    for (const auto& item : model.named_buffers()) {
        targets.insert(item.key(), item.value());
    }
    for (const auto& item : targets) {
        const auto saved = tensors.find(prefix + item.key());
        if (saved == tensors.end() || saved->second.sizes() != item.value().sizes()) {
            throw ModelError("RT-M92",
                             detail::concat("\"", item.key(), "\" is ", item.value().sizes(),
                                            " in the program, but ",
                                            saved == tensors.end()
                                                ? std::string("missing")
                                                : detail::concat(saved->second.sizes()),
                                            " in the checkpoint; pass the program that was "
                                            "trained"));
        }
        const at::Tensor target = item.value();
        target.copy_(saved->second);
    }
}

} // namespace script

/// Writes the model as a TorchScript program, which torch.jit.load and torch::jit::load read: the
/// original code and constants, with the weights of now. Atomic and durable: on any failure the
/// file keeps its old content. Call it on one rank only; for the handle of a sharded model, within
/// gathered(). Throws StorageError [RT-S3].
template <script::Scripted Model>
void save_script(const Model& model, const std::filesystem::path& path,
                 const SaveScriptOptions& options = {}) {
    if constexpr (std::derived_from<Model, script::ScriptModule>) {
        script::save(model.script(), path, options);
    } else {
        const script::ScriptModule& module = *model;
        script::save(module.script(), path, options);
    }
}

/// Writes the program `program` with the weights of a checkpoint: `rtrain-checkpoint script
/// CHECKPOINT net.pt out.pt`. Throws like ScriptModel and save_script(), CheckpointError [RT-K2]
/// for a damaged checkpoint, and ModelError [RT-M92] if the checkpoint has no such model.
inline void save_script(const Checkpoint& checkpoint, const std::filesystem::path& program,
                        const std::filesystem::path& path, const SaveScriptOptions& options = {}) {
    script::ScriptModule model(script::load(program), program.string());
    const auto& directory = checkpoint.as_directory();
    (void)checkpoint::verify(directory);
    checkpoint::Snapshot state = checkpoint::read_state(directory);
    for (const auto& [name, whole] : state.pieces) {
        state.tensors.emplace(name, checkpoint::assemble(whole));
    }
    script::fill(model, state.tensors, script::part_for(model, state.tensors, checkpoint.uri()));
    script::save(model.script(), path, options);
}

} // namespace rtrain
