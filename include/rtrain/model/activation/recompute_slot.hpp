// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placeholder that recompute() keeps instead of a tensor, and the second run of the function,
/// which fills it.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::detail {

/// Detects in-place edits of a tensor since construction, as autograd counts them: views share the
/// count.
class EditCheck {
public:
    explicit EditCheck(const at::Tensor& tensor)
        : counter_(tensor.unsafeGetTensorImpl()->version_counter()) {
        renew();
    }
    void renew() { version_ = now(); }
    [[nodiscard]] bool is_edited() const { return now() != version_; }

private:
    [[nodiscard]] std::uint32_t now() const {
        return counter_.enabled() ? counter_.current_version() : 0;
    }
    c10::VariableVersion counter_;
    std::uint32_t version_ = 0;
};

/// A tensor that a node saved in the first pass.
struct RecomputeSlot {
    explicit RecomputeSlot(const at::Tensor& tensor)
        : sizes(tensor.sizes()), type(tensor.scalar_type()), device(tensor.device()),
          edits(tensor) {}
    [[nodiscard]] bool is_like(const at::Tensor& tensor) const {
        return tensor.sizes() == sizes && tensor.scalar_type() == type && tensor.device() == device;
    }
    c10::DimVector sizes;
    at::ScalarType type;
    at::Device device;
    EditCheck edits;
    bool is_wanted = true; ///< its node still exists
    bool is_given = false; ///< to the graph task that runs
    at::Tensor again;      ///< recomputed, and not yet returned
    std::optional<EditCheck> edits_again;
};

/// Thrown when f has computed all that is needed. Not a std::exception, so that f does not catch it
/// as one. Never thrown through a backward within f: autograd's engine handles std::exception only.
struct AllIsRecomputed {};

/// f's second run, which fills the slots of the first.
class Recomputation {
public:
    Recomputation(std::vector<RecomputeSlot>& slots, std::size_t asked) : slots_(slots) {
        is_kept_.resize(slots_.size());
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            is_kept_[i] = i == asked || (slots_[i].is_wanted && !slots_[i].is_given);
            end_ = is_kept_[i] ? i + 1 : end_;
        }
    }

    /// Called when a node of this run saves a tensor.
    void keep(const at::Tensor& tensor) {
        const std::size_t i = count_++;
        if (i < end_ && !slots_[i].is_like(tensor)) {
            throw ModelError(
                "RT-M30",
                concat("a function under recompute() did something else when it ran again: tensor ",
                       i, " that it saves for backward was ", slots_[i].type, " ", slots_[i].sizes,
                       ", and is ", tensor.scalar_type(), " ", tensor.sizes(), advice));
        }
        if (i < end_ && is_kept_[i]) {
            slots_[i].again = at::Tensor(tensor.tensor_data());
            slots_[i].edits_again.emplace(tensor);
        }
        if (i + 1 >= end_ && torch::autograd::get_current_graph_task_id() == outer_task_) {
            throw AllIsRecomputed{};
        }
    }

    /// Called when f has returned.
    void require_all() const {
        if (count_ < end_) {
            throw ModelError(
                "RT-M30",
                concat(
                    "a function under recompute() did something else when it ran again: it saved ",
                    count_, " tensors for backward, of ", slots_.size(), " before", advice));
        }
    }

private:
    static constexpr const char* advice =
        "; make it do the same for the same arguments: capture by value what it needs, and do not "
        "change what its control flow depends on before backward()";

    std::vector<RecomputeSlot>& slots_;
    std::vector<bool> is_kept_;
    std::size_t end_ = 0; ///< one past the last that is kept
    std::size_t count_ = 0;
    int outer_task_ = torch::autograd::get_current_graph_task_id(); ///< in which f runs again
};

} // namespace rtrain::detail
