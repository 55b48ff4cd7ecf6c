// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that a prepared model still has the parameters that it was prepared with, of the same
/// types and shapes. Others would be trained without being averaged.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Checks every parameter of every module; takes well under a microsecond for a small model.
class ModelGuard {
public:
    /// Parameters named in `ignored` may change.
    ModelGuard(const std::shared_ptr<const torch::nn::Module>& model,
               const std::vector<std::string>& ignored)
        : model_(model) {
        remember(*model, "");
        for (KnownParameter& known : parameters_) {
            known.ignored = std::find(ignored.begin(), ignored.end(), known.name) != ignored.end();
        }
    }

    /// Throws ModelError [RT-M23] naming the first parameter that differs. Does not communicate.
    void require_unchanged() const {
        const auto model = model_.lock();
        std::size_t next = 0;
        if (model && !(is_unchanged(*model, next) && next == parameters_.size())) {
            throw_changed(*model);
        }
    }

private:
    struct KnownParameter {
        std::string name;
        at::Tensor tensor; ///< kept, so that no other tensor gets its address
        at::ScalarType type = at::kFloat;
        at::Device device = at::kCPU;
        std::vector<std::int64_t> sizes;
        bool ignored = false;

        [[nodiscard]] bool is(const at::Tensor& now) const {
            return ignored ||
                   (now.is_same(tensor) &&
                    (!now.defined() || (now.scalar_type() == type && now.device() == device &&
                                        now.sizes() == at::IntArrayRef(sizes))));
        }
    };
    /// The module's dictionary itself: all public accessors return copies.
    struct OwnParameters : torch::nn::Module {
        [[nodiscard]] static const auto& of(const torch::nn::Module& module) {
            return module.*(&OwnParameters::parameters_);
        }
    };

    void remember(const torch::nn::Module& module, const std::string& prefix) {
        for (const auto& item : OwnParameters::of(module)) {
            const at::Tensor& tensor = item.value();
            KnownParameter known;
            known.name = prefix + item.key();
            known.tensor = tensor;
            if (tensor.defined()) {
                known.type = tensor.scalar_type();
                known.device = tensor.device();
                known.sizes = tensor.sizes().vec();
            }
            parameters_.push_back(std::move(known));
        }
        for (const auto& child : module.named_children()) {
            remember(*child.value(), prefix + child.key() + ".");
        }
    }

    /// Walks like remember(); `next` is the index of the next parameter.
    [[nodiscard]] bool is_unchanged(const torch::nn::Module& module, std::size_t& next) const {
        for (const auto& item : OwnParameters::of(module)) {
            if (next == parameters_.size() || !parameters_[next++].is(item.value())) {
                return false;
            }
        }
        for (const auto& child : module.children()) {
            if (!is_unchanged(*child, next)) {
                return false;
            }
        }
        return true;
    }

    [[noreturn]] void throw_changed(const torch::nn::Module& model) const {
        std::string what = "its parameters are in a different order";
        const auto now = model.named_parameters();
        const auto found = [&now](const std::string& name) {
            return now.contains(name) ? now[name] : at::Tensor();
        };
        std::size_t defined = 0;
        for (const KnownParameter& known : parameters_) {
            defined += known.tensor.defined() ? 1U : 0U;
            const at::Tensor tensor = found(known.name);
            if (!known.is(tensor)) {
                what = describe(known, tensor);
                break;
            }
        }
        if (defined < now.size()) {
            for (const auto& item : now) {
                if (!contains(item.key())) {
                    what = concat("parameter \"", item.key(), "\" was added");
                    break;
                }
            }
        }
        throw ModelError("RT-M23", concat("the model is not the one that was prepared: ", what,
                                          "; its gradients would not be averaged. Change a model "
                                          "before prepare(), or prepare the changed model again"));
    }

    [[nodiscard]] bool contains(const std::string& name) const {
        for (const KnownParameter& known : parameters_) {
            if (known.name == name && known.tensor.defined()) {
                return true;
            }
        }
        return false;
    }

    [[nodiscard]] static std::string describe(const KnownParameter& known, const at::Tensor& now) {
        const auto text = [](at::ScalarType type, at::IntArrayRef sizes, at::Device device) {
            return concat(c10::toString(type), sizes, " on ", device);
        };
        if (!now.defined()) {
            return concat("parameter \"", known.name, "\" was removed");
        }
        if (!now.is_same(known.tensor)) {
            return concat("parameter \"", known.name, "\" is a different tensor");
        }
        return concat("parameter \"", known.name, "\" is ",
                      text(now.scalar_type(), now.sizes(), now.device()), ", and was ",
                      text(known.type, known.sizes, known.device));
    }

    std::weak_ptr<const torch::nn::Module> model_;
    std::vector<KnownParameter> parameters_; ///< in the order of a walk, parents first
};

} // namespace rtrain::detail
