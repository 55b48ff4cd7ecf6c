// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exact elements of parameters that a model stores in fewer bits than it trains them in, or of
/// which a rank has only a part. Code that saves or loads a parameter finds its elements here.
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
    at::Tensor elements; ///< 1-D, in memory order
    /// Set if the parameter itself cannot be written: called after the elements are written.
    std::function<void()> loaded;
};

/// A set of exact parts that find() returns while this object lives.
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
    /// Empty for a parameter without a separate exact copy.
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

    std::vector<at::Tensor> mine_; ///< alive, so that no other tensor reuses an address
};

} // namespace rtrain::checkpoint
