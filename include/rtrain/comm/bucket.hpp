// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradient buckets in memory that a node's ranks share, and their all-reduce without copies: each
/// rank combines its slice directly from its neighbours' buckets and writes the result to all of
/// them.
#pragma once

#include <rtrain/comm/call.hpp>
#include <rtrain/comm/calls.hpp>
#include <rtrain/comm/finite.hpp>
#include <rtrain/comm/group.hpp>
#include <rtrain/comm/kernels.hpp>
#include <rtrain/comm/named_all_reduce.hpp>
#include <rtrain/comm/node.hpp>
#include <rtrain/comm/shared_memory.hpp>
#include <rtrain/comm/slices.hpp>
#include <rtrain/comm/stages.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// One bucket a rank, of equal size, in one mapping.
class SharedBuckets {
public:
    /// Collective over `group`, whose ranks share a node. Throws CommError [RT-X12].
    SharedBuckets(Group& group, std::size_t bytes)
        : size_(group.size()), rank_(group.rank()), stride_(round_up(bytes)),
          memory_(share_memory(group, header_bytes() + static_cast<std::size_t>(size_) * stride_)),
          stages_(memory_.data(), rank_, size_) {}

    /// Returns the start of a rank's bucket, which begins on a separate page.
    [[nodiscard]] std::byte* bucket_of(int rank) const {
        return memory_.data() + header_bytes() + static_cast<std::size_t>(rank) * stride_;
    }
    [[nodiscard]] std::byte* mine() const { return bucket_of(rank_); }
    [[nodiscard]] bool contains(const void* address, std::size_t bytes) const {
        const auto* const begin = static_cast<const std::byte*>(address);
        return begin >= mine() && begin + bytes <= mine() + stride_;
    }

    /// Progress of the ranks in this bucket's reductions.
    [[nodiscard]] Stages<Call>& stages() noexcept { return stages_; }

private:
    static constexpr std::size_t page = 4096;
    [[nodiscard]] static std::size_t round_up(std::size_t bytes) {
        return (bytes + page - 1) / page * page;
    }
    [[nodiscard]] std::size_t header_bytes() const {
        return round_up(Stages<Call>::bytes_for(size_));
    }

    int size_;
    int rank_;
    std::size_t stride_;
    SharedMemory memory_;
    Stages<Call> stages_;
};

/// The buckets that a communicator has allocated.
class GivenBuckets {
public:
    void add(const std::shared_ptr<SharedBuckets>& buckets) {
        std::erase_if(items_, [](const auto& item) { return item.expired(); });
        items_.push_back(buckets);
    }
    /// Returns the buckets that contain a contiguous CPU tensor, if any.
    [[nodiscard]] std::shared_ptr<SharedBuckets> find(const at::Tensor& tensor) const {
        if (items_.empty() || !tensor.is_contiguous()) {
            return nullptr;
        }
        for (const auto& item : items_) {
            auto buckets = item.lock();
            if (buckets && buckets->contains(tensor.const_data_ptr(), tensor.nbytes())) {
                return buckets;
            }
        }
        return nullptr;
    }

private:
    std::vector<std::weak_ptr<SharedBuckets>> items_;
};

/// In-place all-reduce of a tensor in a bucket. Repeatable; one at a time for each bucket.
class BucketAllReduce {
public:
    struct Ranks {
        Group& node;
        /// The ranks that reduce the same slice on other nodes; null for a rank without a slice, or
        /// with one node.
        Group* across;
        int slices; ///< number of ranks of each node that reduce one
        const Calls& calls;
    };

    BucketAllReduce(const Ranks& ranks, std::shared_ptr<SharedBuckets> buckets,
                    const at::Tensor& tensor, const Call& call, int divisor)
        : node_(&ranks.node), calls_(&ranks.calls), buckets_(std::move(buckets)), call_(call),
          slices_(Slices::balanced(tensor.numel(), ranks.slices)),
          element_(c10::elementSize(call.type)),
          offset_(static_cast<std::size_t>(static_cast<const std::byte*>(tensor.const_data_ptr()) -
                                           buckets_->mine())) {
        const at::Tensor mine =
            tensor.view({-1}).narrow(0, slices_.begin(node_->rank()), slices_.count(node_->rank()));
        const Divisors divisors(call.type, divisor);
        if (ranks.across != nullptr) {
            across_.emplace(*ranks.across, *calls_, mine, call.op, divisors.across);
        }
        here_ = {call.type, call.op, ranks.across == nullptr ? divisor : divisors.here};
    }

    /// From the next start() on, finite() is available once poll() returns true. Call it on all
    /// ranks or none.
    void check_finite() noexcept { checks_ = true; }
    /// True if all of the result is finite: each rank checks its slice while that is in cache.
    /// Empty unless requested.
    [[nodiscard]] std::optional<bool> finite() const noexcept {
        return checks_ ? std::optional(finite_) : std::nullopt;
    }

    /// `call`: this one, with its position in the order.
    void start(const Call& call) {
        call_ = call;
        if (across_) {
            across_->reserve();
        }
        buckets_->stages().publish(call_);
        phase_ = Phase::arriving;
    }

    /// Advances as far as the other ranks allow; true when the tensor holds the result.
    [[nodiscard]] bool poll() {
        if (phase_ == Phase::arriving && buckets_->stages().poll()) {
            calls_->require_agreement(*node_, buckets_->stages());
            reduce_here();
        }
        if (phase_ == Phase::across && across_->poll()) {
            hand_out();
        }
        if (phase_ == Phase::sharing && buckets_->stages().poll()) {
            finite_ = true;
            for (int rank = 0; rank < node_->size(); ++rank) {
                finite_ = finite_ && buckets_->stages().call_of(rank).finite;
            }
            phase_ = Phase::done;
        }
        return phase_ == Phase::done;
    }
    /// Returns the ranks that it waits for.
    [[nodiscard]] std::vector<int> awaited() const {
        return phase_ == Phase::across ? across_->awaited()
                                       : node_->world_ranks(buckets_->stages().absent());
    }

private:
    enum class Phase : unsigned char { arriving, across, sharing, done };

    [[nodiscard]] std::byte* slice_in(int rank) const {
        return buckets_->bucket_of(rank) + offset_ +
               static_cast<std::size_t>(slices_.begin(node_->rank())) * element_;
    }

    void reduce_here() {
        pointers_.clear();
        for (int rank = 0; rank < node_->size(); ++rank) {
            pointers_.push_back(slice_in(rank));
        }
        std::vector<const std::byte*> sources(pointers_.begin(), pointers_.end());
        std::byte* own = slice_in(node_->rank());
        const std::span<std::byte*> targets =
            across_ ? std::span<std::byte*>(&own, 1) : std::span<std::byte*>(pointers_);
        const std::int64_t count = slices_.count(node_->rank());
        const bool check = checks_ && !across_;
        constexpr std::size_t in_cache = 8192; // bytes, with those of a few other ranks
        const std::int64_t piece = check ? static_cast<std::int64_t>(in_cache / element_) : count;
        bool finite = true;
        for (std::int64_t begin = 0; begin < count; begin += piece) {
            const std::int64_t elements = std::min(piece, count - begin);
            here_.run(targets, sources, elements);
            finite = finite && (!check || all_finite(call_.type, targets[0], elements));
            const auto bytes = static_cast<std::size_t>(elements) * element_;
            std::for_each(targets.begin(), targets.end(), [&](auto& data) { data += bytes; });
            std::for_each(sources.begin(), sources.end(), [&](auto& data) { data += bytes; });
        }
        if (across_) {
            across_->begin(call_);
            phase_ = Phase::across;
        } else {
            publish_result(finite);
        }
    }

    void hand_out() {
        const std::int64_t elements = slices_.count(node_->rank());
        const auto bytes = static_cast<std::size_t>(elements) * element_;
        const std::byte* const own = slice_in(node_->rank());
        for (int rank = 0; rank < node_->size() && bytes > 0; ++rank) {
            if (rank != node_->rank()) {
                std::memcpy(slice_in(rank), own, bytes);
            }
        }
        publish_result(!checks_ || all_finite(call_.type, own, elements));
    }

    void publish_result(bool finite) {
        Call result = call_;
        result.finite = finite;
        buckets_->stages().publish(result);
        phase_ = Phase::sharing;
    }

    Group* node_;
    const Calls* calls_;
    std::shared_ptr<SharedBuckets> buckets_;
    Call call_;
    Slices slices_;
    std::size_t element_;
    std::size_t offset_;
    std::optional<NamedAllReduce> across_;
    Reduction here_{};
    std::vector<std::byte*> pointers_;
    Phase phase_ = Phase::done;
    bool checks_ = false;
    bool finite_ = true;
};

} // namespace rtrain::comm
