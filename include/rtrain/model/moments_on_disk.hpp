// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an optimizer keeps for its parameters, on a disk: see ShardedOptions::offload. A step goes
/// through the parameters some at a time. While it computes with what is kept for some, what is
/// kept for the next is read, and what it has changed before is written.
#pragma once

#include <rtrain/model/shard_plan.hpp>
#include <rtrain/state/kept_state.hpp>
#include <rtrain/storage/scratch_file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The parameters of an optimizer that have a gradient, without it, while this lives.
class WithheldGradients {
public:
    explicit WithheldGradients(torch::optim::Optimizer& optimizer) {
        for (auto& group : optimizer.param_groups()) {
            for (at::Tensor& parameter : group.params()) {
                if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
                    parameters_.push_back(parameter);
                    gradients_.push_back(std::exchange(gradient, {}));
                }
            }
        }
    }
    WithheldGradients(const WithheldGradients&) = delete;
    WithheldGradients& operator=(const WithheldGradients&) = delete;
    ~WithheldGradients() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            give(i);
        }
    }

    [[nodiscard]] const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
    void give(std::size_t index) { parameters_[index].mutable_grad() = gradients_[index]; }
    void withhold(std::size_t index) { parameters_[index].mutable_grad().reset(); }

private:
    std::vector<at::Tensor> parameters_;
    std::vector<at::Tensor> gradients_;
};

class MomentsOnDisk {
public:
    /// Throws StorageError [RT-S3].
    explicit MomentsOnDisk(const std::filesystem::path& directory)
        : file_(std::make_shared<storage::ScratchFile>(directory)) {}

    /// Steps all parameters that have a gradient; `step` does so, and treats each by itself. Throws
    /// StorageError [RT-S3].
    void step(torch::optim::Optimizer& optimizer, const std::function<void()>& step) {
        WithheldGradients gradients(optimizer);
        const std::vector<at::Tensor>& all = gradients.parameters();
        const std::vector<Portion> portions = portions_of(all);
        for (std::size_t k = 0; k < portions.size(); ++k) {
            if (k + 1 < portions.size()) {
                for_each_region(all, portions[k + 1], storage::ScratchFile::fetch);
            }
            for (std::size_t i = portions[k].begin; i < portions[k].end; ++i) {
                gradients.give(i);
            }
            step();
            for (std::size_t i = portions[k].begin; i < portions[k].end; ++i) {
                gradients.withhold(i);
                take_over(optimizer, all[i]);
            }
            for_each_region(all, portions[k], [&](auto& region) { file_->begin_writing(region); });
            if (k > 0) {
                for_each_region(all, portions[k - 1], [&](auto& region) { file_->drop(region); });
            }
        }
        if (!portions.empty()) {
            for_each_region(all, portions.back(), [&](auto& region) { file_->drop(region); });
        }
    }

    /// What the optimizer keeps for a parameter has been loaded. Throws StorageError [RT-S3].
    void settle(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
        take_over(optimizer, parameter);
        for_each_region({parameter}, {0, 1}, [&](auto& region) { file_->drop(region); });
    }

private:
    using Region = storage::ScratchFile::Region;
    /// Parameters that are stepped at once.
    struct Portion {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    [[nodiscard]] static std::vector<Portion> portions_of(const std::vector<at::Tensor>& all) {
        std::vector<Portion> portions;
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (portions.empty() || bytes + all[i].nbytes() > bytes_stepped_at_once) {
                portions.push_back({i, i});
                bytes = 0;
            }
            bytes += all[i].nbytes();
            portions.back().end = i + 1;
        }
        return portions;
    }

    /// Tensors that the optimizer has made become memory of the file; small ones stay.
    void take_over(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
        constexpr std::size_t least = std::size_t{64} << 10;
        checkpoint::visit_optimizer_state(
            optimizer, parameter, [&](const char* name, at::Tensor& kept) {
                if (kept.nbytes() < least || !kept.is_contiguous()) {
                    return;
                }
                Region& region = regions_[parameter.unsafeGetTensorImpl()][name];
                if (region.bytes < kept.nbytes()) {
                    region = file_->map(kept.nbytes());
                }
                if (kept.const_data_ptr() != region.data) {
                    std::memcpy(region.data, kept.const_data_ptr(), kept.nbytes());
                    kept = at::from_blob(
                        region.data, kept.sizes(), [file = file_](void* /*data*/) {},
                        kept.options());
                }
            });
    }

    template <class Action>
    void for_each_region(const std::vector<at::Tensor>& all, Portion portion, Action&& action) {
        for (std::size_t i = portion.begin; i < portion.end; ++i) {
            const auto found = regions_.find(all[i].unsafeGetTensorImpl());
            if (found != regions_.end()) {
                for (const auto& [name, region] : found->second) {
                    action(region);
                }
            }
        }
    }

    std::shared_ptr<storage::ScratchFile> file_;
    /// By parameter, and by the name of what is kept for it.
    std::unordered_map<const void*, std::map<std::string, Region>> regions_;
};

} // namespace rtrain::detail
