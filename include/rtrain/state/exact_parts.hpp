// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parameters that a model keeps in fewer bits than they are trained in, or of which a rank has
/// its part only: this rank's elements of them, exactly. What saves and loads a parameter asks
/// here, wherever it is called from.
#pragma once

#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

struct ExactPart {
    PartOf of;
    at::Tensor elements; ///< of one dimension, as they lie in memory
    /// Where the parameter itself cannot be written: called behind what writes the elements.
    std::function<void()> loaded;
};

/// Some of them, known while it lives.
class ExactParts {
public:
    ExactParts() = default;
    ExactParts(const ExactParts&) = delete;
    ExactParts& operator=(const ExactParts&) = delete;
    ~ExactParts() {
        const std::lock_guard lock(mutex());
        for (const at::Tensor& parameter : mine_) {
            known().erase(parameter.unsafeGetTensorImpl());
        }
    }

    void add(const at::Tensor& parameter, ExactPart part) {
        const std::lock_guard lock(mutex());
        known()[parameter.unsafeGetTensorImpl()] = std::move(part);
        mine_.push_back(parameter);
    }
    /// None for a parameter that is all there is.
    [[nodiscard]] static std::optional<ExactPart> find(const at::Tensor& parameter) {
        const std::lock_guard lock(mutex());
        const auto found = known().find(parameter.unsafeGetTensorImpl());
        return found == known().end() ? std::nullopt : std::optional(found->second);
    }

private:
    [[nodiscard]] static std::mutex& mutex() {
        static std::mutex mutex;
        return mutex;
    }
    [[nodiscard]] static std::unordered_map<const void*, ExactPart>& known() {
        static std::unordered_map<const void*, ExactPart> parts;
        return parts;
    }

    std::vector<at::Tensor> mine_; ///< kept, so that no other gets its address
};

} // namespace rtrain::checkpoint
