// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door save_script.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/pieces.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/model/script/program_copy.hpp>
#include <rtrain/model/script/save_script.hpp>
#include <rtrain/storage/file/file.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/serialization/export.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>

namespace rtrain {

namespace script {

/// Writes a program; a crash or an error leaves the old file.
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

/// Finds the part of a checkpoint that has all parameters of the model, and returns its prefix.
/// Throws ModelError [RT-M92].
[[nodiscard]] inline std::string part_for(const ScriptModule& model,
                                          const checkpoint::safetensors::Tensors& tensors,
                                          const std::string& checkpoint) {
    const auto names = model.named_parameters().keys();
    auto furthest = names.begin();
    for (const auto& [name, tensor] : tensors) {
        const std::string prefix = name.substr(0, name.find('/') + 1);
        const auto missing = std::find_if(names.begin(), names.end(), [&](const auto& parameter) {
            return !tensors.contains(prefix + parameter);
        });
        if (missing == names.end()) {
            return prefix;
        }
        furthest = std::max(furthest, missing);
    }
    throw ModelError(
        "RT-M92", detail::concat(checkpoint, " has no model with the parameters of the program: ",
                                 furthest == names.end() ? "the checkpoint is empty"
                                                         : '"' + *furthest + "\" is missing",
                                 "; pass the program that was trained"));
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

RTRAIN_DOOR void save_script(const script::ScriptModule& model, const std::filesystem::path& path,
                             const SaveScriptOptions& options) {
    script::ProgramCopy copy;
    torch::jit::Module program = copy.of(model.script());
    if (options.evaluation) {
        program.eval();
    }
    script::write(program, path);
}

RTRAIN_DOOR void save_script(const Checkpoint& checkpoint, const std::filesystem::path& program,
                             const std::filesystem::path& path, const SaveScriptOptions& options) {
    script::ScriptModule model(script::load(program), program.string());
    const auto& directory = checkpoint.as_directory();
    (void)checkpoint::verify(directory);
    checkpoint::Snapshot state = checkpoint::read_state(directory);
    for (const auto& [name, whole] : state.pieces) {
        state.tensors.emplace(name, checkpoint::assemble(whole));
    }
    script::fill(model, state.tensors, script::part_for(model, state.tensors, checkpoint.uri()));
    save_script(model, path, options);
}

} // namespace rtrain
