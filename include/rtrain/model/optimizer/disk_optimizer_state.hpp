// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizer state on a disk: see ShardedOptions::offload. A step processes a portion of the
/// parameters at a time. While it computes with one portion's state, other threads read that of the
/// next and write that of the previous, bypassing the page cache: the faults of a mapping take
/// twice as long as a disk does.
#pragma once

#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/storage/file/scratch_file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Detaches the gradients of an optimizer's parameters while it lives.
class DetachedGradients {
public:
    explicit DetachedGradients(torch::optim::Optimizer& optimizer) {
        for (auto& group : optimizer.param_groups()) {
            for (at::Tensor& parameter : group.params()) {
                if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
                    parameters_.push_back(parameter);
                    gradients_.push_back(std::exchange(gradient, {}));
                }
            }
        }
    }
    DetachedGradients(const DetachedGradients&) = delete;
    DetachedGradients& operator=(const DetachedGradients&) = delete;
    ~DetachedGradients() {
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

class DiskOptimizerState {
public:
    /// Throws StorageError [RT-S3].
    explicit DiskOptimizerState(const std::filesystem::path& directory)
        : file_(std::make_shared<storage::ScratchFile>(directory)) {}

    /// Steps all parameters that have a gradient; `step` does so, each independently of the others.
    /// Throws StorageError [RT-S3].
    void step(torch::optim::Optimizer& optimizer, const std::function<void()>& step) {
        DetachedGradients gradients(optimizer);
        const std::vector<at::Tensor>& all = gradients.parameters();
        const std::vector<Portion> portions = portions_of(all);
        std::array<std::future<void>, rooms> transfers; // block on destruction
        const auto begin_reading = [&](std::size_t k) {
            finish(transfers[k % rooms]);
            ShardBuffer& room = rooms_[k % rooms];
            invite(room, all, portions[k]);
            transfers[k % rooms] = begin(room, &storage::ScratchFile::read);
        };
        if (!portions.empty()) {
            begin_reading(0);
        }
        for (std::size_t k = 0; k < portions.size(); ++k) {
            if (k + 1 < portions.size()) {
                begin_reading(k + 1);
            }
            finish(transfers[k % rooms]);
            ShardBuffer& room = rooms_[k % rooms];
            for (std::size_t i = portions[k].begin; i < portions[k].end; ++i) {
                gradients.give(i);
            }
            {
                const InRoom moments(room);
                step();
            }
            for (std::size_t i = portions[k].begin; i < portions[k].end; ++i) {
                gradients.withhold(i);
                take_over(optimizer, all[i]);
            }
            // The file already has the bytes of tensors that the optimizer has replaced.
            std::erase_if(room.guests, [](const Guest& guest) {
                return !guest.tensor.is_same(guest.kept->tensor);
            });
            transfers[k % rooms] = begin(room, &storage::ScratchFile::write);
        }
        for (std::future<void>& last : transfers) {
            finish(last);
        }
    }

    /// Moves a parameter's loaded state to disk. Throws StorageError [RT-S3].
    void settle(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
        process::DeferredCopy::finish_all();
        take_over(optimizer, parameter);
    }

private:
    using Region = storage::ScratchFile::Region;
    /// One tensor of the optimizer, in the region's memory.
    struct Kept {
        Region region;
        at::Tensor tensor;
    };
    /// Parameters that are stepped together.
    struct Portion {
        std::size_t begin = 0;
        std::size_t end = 0;
    };
    /// State of a portion, which is in separate memory while it is stepped.
    struct Guest {
        const Kept* kept;
        at::Tensor tensor; ///< the optimizer's when it was read
        std::size_t offset;
    };
    struct ShardBuffer {
        struct Free {
            void operator()(std::byte* memory) const noexcept { std::free(memory); }
        };
        std::vector<Guest> guests;
        std::unique_ptr<std::byte, Free> memory;
        std::size_t bytes = 0;
    };
    /// One is read, one is stepped, one is written.
    static constexpr std::size_t rooms = 3;

    /// Gives guests' tensors the room's memory while it lives.
    class InRoom {
    public:
        explicit InRoom(ShardBuffer& room) : room_(room) {
            for (const Guest& guest : room_.guests) {
                places_.emplace_back(room_.memory.get() + guest.offset, at::kCPU);
            }
            swap();
        }
        InRoom(const InRoom&) = delete;
        InRoom& operator=(const InRoom&) = delete;
        ~InRoom() { swap(); }

    private:
        void swap() {
            for (std::size_t i = 0; i < places_.size(); ++i) {
                const auto& storage = room_.guests[i].tensor.storage();
                places_[i] = storage.unsafeGetStorageImpl()->set_data_ptr(std::move(places_[i]));
            }
        }

        ShardBuffer& room_;
        std::vector<at::DataPtr> places_; ///< the ones swapped out
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

    /// Allocates memory for the portion's state.
    void invite(ShardBuffer& room, const std::vector<at::Tensor>& all, Portion portion) {
        room.guests.clear();
        std::size_t bytes = 0;
        for (std::size_t i = portion.begin; i < portion.end; ++i) {
            const auto found = kept_.find(all[i].unsafeGetTensorImpl());
            if (found != kept_.end()) {
                for (const auto& [name, kept] : found->second) {
                    room.guests.push_back({&kept, kept.tensor, bytes});
                    bytes += kept.region.bytes;
                }
            }
        }
        if (room.bytes < bytes) {
            auto* const memory = std::aligned_alloc(storage::ScratchFile::page, bytes);
            if (memory == nullptr) {
                throw std::bad_alloc();
            }
            room.memory.reset(static_cast<std::byte*>(memory));
            room.bytes = bytes;
        }
    }
    [[nodiscard]] std::future<void>
    begin(const ShardBuffer& room,
          void (storage::ScratchFile::*transfer)(const Region&, std::byte*) const) const {
        if (room.guests.empty()) {
            return {};
        }
        return process::starting_thread([&] {
            return std::async(std::launch::async, [this, &room, transfer] {
                for (const Guest& guest : room.guests) {
                    (*file_.*transfer)(guest.kept->region, room.memory.get() + guest.offset);
                }
            });
        });
    }
    static void finish(std::future<void>& transfer) {
        if (transfer.valid()) {
            transfer.get();
        }
    }

    /// Moves tensors that the optimizer has created to memory of the file; small ones stay.
    void take_over(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
        constexpr std::size_t least = std::size_t{64} << 10;
        checkpoint::visit_optimizer_state(
            optimizer, parameter, [&](const char* name, at::Tensor& tensor) {
                if (tensor.nbytes() < least || !tensor.is_contiguous()) {
                    return;
                }
                Kept& kept = kept_[parameter.unsafeGetTensorImpl()][name];
                if (tensor.is_same(kept.tensor)) {
                    return;
                }
                if (kept.region.bytes < tensor.nbytes()) {
                    kept.region = file_->map(tensor.nbytes());
                }
                std::memcpy(kept.region.data, tensor.const_data_ptr(), tensor.nbytes());
                file_->drop(kept.region);
                tensor = at::from_blob(
                    kept.region.data, tensor.sizes(), [file = file_](void* /*data*/) {},
                    tensor.options());
                kept.tensor = tensor;
            });
    }

    std::shared_ptr<storage::ScratchFile> file_;
    /// The state, by parameter and by its name.
    std::unordered_map<const void*, std::map<std::string, Kept>> kept_;
    std::array<ShardBuffer, rooms> rooms_;
};

} // namespace rtrain::detail
