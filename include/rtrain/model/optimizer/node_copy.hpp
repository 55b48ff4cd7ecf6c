// SPDX-License-Identifier: Apache-2.0
/// @file
/// The copy of parameters and moments that a node's ranks share: see node_step.hpp.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/memory/written_pages.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

class NodeCopy {
public:
    /// A parameter and its moments, of its type and layout. This rank steps `elements` of each from
    /// `begin` on, in memory order.
    struct Member {
        at::Tensor parameter;
        std::size_t offset = 0; ///< in bytes; a moment is as far into its array
        std::int64_t begin = 0;
        std::int64_t elements = 0;
        std::vector<at::Tensor> slices; ///< of the parameter and its moments

        [[nodiscard]] std::size_t first_byte() const {
            return static_cast<std::size_t>(begin * parameter.element_size());
        }
        [[nodiscard]] std::size_t bytes() const {
            return static_cast<std::size_t>(elements * parameter.element_size());
        }
    };

    /// `ranks` outlives this object, and share memory. Copies the parameters, which keep their
    /// memory until adopt(). *Collective* over the node. Throws CommError [RT-X12].
    NodeCopy(comm::Communicator& ranks, const std::vector<at::Tensor>& parameters,
             std::size_t moments)
        : ranks_(ranks), moments_(moments) {
        const auto size = static_cast<std::size_t>(ranks.local_size());
        for (const at::Tensor& parameter : parameters) {
            const auto slices = comm::Slices::balanced(parameter.numel(), ranks.local_size());
            indices_.emplace(parameter.unsafeGetTensorImpl(), members_.size());
            members_.push_back({parameter,
                                array_bytes_,
                                slices.begin(ranks.local_rank()),
                                slices.count(ranks.local_rank()),
                                {}});
            array_bytes_ += in_lines(parameter.nbytes());
        }
        const std::size_t bytes = (1 + moments_) * array_bytes_;
        array_ = ranks.allocate_array(bytes + size * line, std::nullopt);
        meetings_ = ranks.allocate_meetings(2, true);
        pages_.emplace(array_->read(), bytes);
        for (Member& member : members_) {
            for (std::size_t k = 0; k <= moments_; ++k) {
                member.slices.push_back(at::from_blob(
                    array_->write() + k * array_bytes_ + member.offset + member.first_byte(),
                    {member.elements}, [array = array_](void* /*data*/) {},
                    member.parameter.options().requires_grad(false)));
            }
            copy_slice(member, 0, static_cast<const std::byte*>(member.parameter.const_data_ptr()));
        }
    }
    NodeCopy(const NodeCopy&) = delete;
    NodeCopy& operator=(const NodeCopy&) = delete;
    ~NodeCopy() = default;

    [[nodiscard]] const comm::Communicator& ranks() const noexcept { return ranks_; }
    [[nodiscard]] std::size_t moments() const noexcept { return moments_; }
    /// Null for other parameters.
    [[nodiscard]] const Member* find(const at::Tensor& parameter) const {
        const auto found = indices_.find(parameter.unsafeGetTensorImpl());
        return found == indices_.end() ? nullptr : &members_[found->second];
    }

    /// This rank's view of a parameter (0) or a moment (1 on).
    [[nodiscard]] std::byte* view(const Member& member, std::size_t k) const {
        return array_->read() + k * array_bytes_ + member.offset;
    }
    /// The moment, over this rank's view.
    [[nodiscard]] at::Tensor moment(const Member& member, std::size_t k) const {
        const at::Tensor& like = member.parameter;
        return at::from_blob(
            view(member, k), like.sizes(), like.strides(), [array = array_](void* /*data*/) {},
            like.options().requires_grad(false));
    }
    /// Writes this rank's slice of a whole tensor in memory order to the node's copy.
    void copy_slice(const Member& member, std::size_t k, const std::byte* whole) const {
        std::memcpy(member.slices[k].data_ptr(), whole + member.first_byte(), member.bytes());
    }
    /// Gives all parameters the memory of this rank's view, and what shares their storage.
    void adopt() const {
        for (const Member& member : members_) {
            auto* const storage = member.parameter.storage().unsafeGetStorageImpl();
            auto owner = std::make_unique<Owner>(array_);
            void* const data = view(member, 0);
            (void)storage->set_data_ptr({data, owner.release(), &release, at::kCPU});
        }
    }
    /// True if a parameter can get other memory: libtorch has allocated it, or a copy of a node.
    [[nodiscard]] static bool can_adopt(const at::Tensor& parameter) {
        const auto deleter = parameter.storage().data_ptr().get_deleter();
        return parameter.storage_offset() == 0 &&
               parameter.storage().nbytes() == parameter.nbytes() &&
               (deleter == &release || deleter == c10::GetDefaultCPUAllocator()->raw_deleter());
    }

    /// True if all ranks of the node have passed the same digest, not 0. Then nothing is read in
    /// this rank's slices until all ranks have called end(), and what this process has written
    /// there counts. *Collective.*
    [[nodiscard]] bool begin(std::uint64_t digest) {
        const auto written = pages_->find();
        digests()[own_digest()] = written ? digest : 0;
        meet(0);
        for (int rank = 0; rank < ranks_.local_size(); ++rank) {
            if (!written || digest == 0 || digests()[rank * per_line] != digest) {
                return false;
            }
        }
        for (const auto& range : *written) {
            for (const Member& member : members_) {
                take(member, range);
            }
        }
        pages_->drop(*written);
        return true;
    }
    void end() { meet(1); }

    /// Writes to the view; true if that page is found, and another shows what the node writes.
    [[nodiscard]] bool try_pages() {
        const auto before = pages_->find();
        if (!before || !before->empty()) {
            return false;
        }
        *array_->read() = std::byte{1};
        const auto after = pages_->find();
        pages_->drop(after.value_or(std::vector<process::WrittenPages::Range>()));
        std::byte* const digest = reinterpret_cast<std::byte*>(digests() + own_digest());
        *digest = std::byte{1};
        return after && after->size() == 1 && after->front().begin == 0 &&
               array_->read()[digest - array_->write()] == std::byte{1};
    }

private:
    using Owner = std::shared_ptr<comm::NodeArray>;
    static constexpr std::size_t line = 64;
    static constexpr int per_line = line / sizeof(std::uint64_t);

    [[nodiscard]] static std::size_t in_lines(std::size_t bytes) {
        return (bytes + line - 1) / line * line;
    }
    static void release(void* owner) { delete static_cast<Owner*>(owner); }

    /// A line for each rank, after the arrays.
    [[nodiscard]] std::uint64_t* digests() const {
        return reinterpret_cast<std::uint64_t*>(array_->write() + (1 + moments_) * array_bytes_);
    }

    /// Copies what the range has of this rank's slices from the view to the node's copy.
    void take(const Member& member, const process::WrittenPages::Range& range) const {
        for (std::size_t k = 0; k <= moments_; ++k) {
            const std::size_t begin = k * array_bytes_ + member.offset + member.first_byte();
            const std::size_t from = std::max(begin, range.begin);
            const std::size_t to = std::min(begin + member.bytes(), range.end);
            if (from < to) {
                std::memcpy(array_->write() + from, array_->read() + from, to - from);
            }
        }
    }

    [[nodiscard]] int own_digest() const { return ranks_.local_rank() * per_line; }

    void meet(std::size_t place) {
        struct Progress {
            comm::SplitBarriers& meetings;
            std::size_t place;
            bool poll() { return meetings.poll(place); }
            [[nodiscard]] std::vector<int> awaited() const { return meetings.awaited(place); }
        } progress{*meetings_, place};
        const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
        meetings_->arrive(place);
        ranks_.wait(progress, "stepping the parameters of a node");
    }

    comm::Communicator& ranks_;
    std::size_t moments_;
    std::size_t array_bytes_ = 0; ///< of parameters, and of each moment
    std::vector<Member> members_;
    std::unordered_map<const void*, std::size_t> indices_; ///< by TensorImpl
    std::shared_ptr<comm::NodeArray> array_;
    std::unique_ptr<comm::SplitBarriers> meetings_;
    std::optional<process::WrittenPages> pages_;
};

} // namespace rtrain::detail
