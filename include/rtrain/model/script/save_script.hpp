// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes a trained script for Python and C++: the original program, with its code and constants
/// unchanged, and the trained weights.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/model/script/script_module.hpp>

#include <concepts>
#include <filesystem>

namespace rtrain {

/// Options of save_script().
struct SaveScriptOptions {
    /// Write the program in evaluation mode, whatever mode the model is in.
    bool evaluation = false;
};

/// Writes the model as a TorchScript program, which torch.jit.load and torch::jit::load read: the
/// original code and constants, with the weights of now. Atomic and durable: on any failure the
/// file keeps its old content. Call it on one rank only; for the handle of a sharded model, within
/// gathered(). Throws StorageError [RT-S3].
void save_script(const script::ScriptModule& model, const std::filesystem::path& path,
                 const SaveScriptOptions& options = {});

/// The same for a ScriptModel, and for its handle.
template <class Handle>
requires requires(const Handle& model) {
    { *model } -> std::convertible_to<const script::ScriptModule&>;
}
void save_script(const Handle& model, const std::filesystem::path& path,
                 const SaveScriptOptions& options = {}) {
    const script::ScriptModule& module = *model;
    save_script(module, path, options);
}

/// Writes the program `program` with the weights of a checkpoint: `rtrain-checkpoint script
/// CHECKPOINT net.pt out.pt`. Throws like ScriptModel and save_script(), CheckpointError [RT-K2]
/// for a damaged checkpoint, and ModelError [RT-M92] if the checkpoint has no such model.
void save_script(const Checkpoint& checkpoint, const std::filesystem::path& program,
                 const std::filesystem::path& path, const SaveScriptOptions& options = {});

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/script/save_script_definitions.hpp>
#endif
