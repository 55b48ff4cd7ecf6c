// SPDX-License-Identifier: Apache-2.0
/// @file
/// A scripted module as a torch::nn::Module: it registers the script's own tensors under their own
/// names, module by module. So optimizers, prepare() and State see ordinary parameters, and the
/// script sees every change of them.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/parameters/scripted_module.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::script {

/// One module of a script, with its children. Its name is that of the Python class.
class ScriptPart : public torch::nn::Module, public rtrain::detail::ScriptedModule {
public:
    explicit ScriptPart(torch::jit::Module script);

    /// Switches the script, too.
    void train(bool on = true) override;

    /// The scripted module. Its tensors are those of this module.
    [[nodiscard]] const torch::jit::Module& script() const noexcept { return script_; }

protected:
    /// Registers the new tensor of each buffer that the script has assigned, as in `self.mean =
    /// 0.9 * self.mean + 0.1 * x`.
    void follow_assignments();
    /// True if a buffer is registered in this module or below.
    [[nodiscard]] bool has_buffers() const;

private:
    struct Buffer {
        std::string name;
        std::size_t slot; ///< in the script
        at::Tensor known; ///< as registered
    };

    torch::jit::Module script_;
    std::vector<Buffer> buffers_here_;
    std::vector<std::shared_ptr<ScriptPart>> parts_;
};

} // namespace rtrain::script

#ifndef RTRAIN_COMPILED
#include <rtrain/model/script/script_part_definitions.hpp>
#endif
