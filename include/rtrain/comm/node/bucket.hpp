// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradient buckets in memory that a node's ranks share, and their all-reduce without copies: each
/// rank combines its slice directly from its neighbours' buckets and writes the result to all of
/// them.
#pragma once

#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/named_all_reduce.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/finite.hpp>
#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/comm/memory/stages.hpp>
#include <rtrain/comm/node/bucket_pieces.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/world/group.hpp>

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

    /// Gives each rank a second memory for pieces of the tensor; see BucketPieces. Null for types
    /// other than float32, and on several nodes. Collective over the node. Throws CommError
    /// [RT-X12].
    [[nodiscard]] std::shared_ptr<BucketPieces> make_pieces(std::vector<Piece> pieces) {
        if (call_.type == at::kFloat && !across_ && slices_.count(0) > 0) {
            pieces_ = std::make_shared<BucketPieces>(
                std::move(pieces), node_->rank(), node_->size(),
                [this](std::size_t bytes) { return share_memory(*node_, bytes); });
        }
        return pieces_;
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

    [[nodiscard]] std::byte* data_in(int rank, std::int64_t element) const {
        return buckets_->bucket_of(rank) + offset_ + static_cast<std::size_t>(element) * element_;
    }
    [[nodiscard]] std::byte* slice_in(int rank) const {
        return data_in(rank, slices_.begin(node_->rank()));
    }

    void reduce_here() {
        const std::int64_t begin = slices_.begin(node_->rank());
        const std::int64_t end = begin + slices_.count(node_->rank());
        const bool finite =
            pieces_ && pieces_->any() ? reduce_pieces(begin, end) : reduce_in_bucket(begin, end);
        if (across_) {
            across_->begin(call_);
            phase_ = Phase::across;
        } else {
            publish_result(finite);
        }
    }

    /// Returns whether the result is finite, if that is checked here.
    [[nodiscard]] bool reduce_in_bucket(std::int64_t begin, std::int64_t end) {
        factors_.assign(static_cast<std::size_t>(node_->size()), 0);
        pointers_.clear();
        for (int rank = 0; rank < node_->size(); ++rank) {
            pointers_.push_back(data_in(rank, begin));
        }
        return reduce(end - begin);
    }
    [[nodiscard]] bool reduce_pieces(std::int64_t begin, std::int64_t end) {
        bool finite = true;
        const auto pieces = pieces_->pieces();
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const std::int64_t from = std::clamp(pieces[i].begin, begin, end);
            const std::int64_t to = std::clamp(pieces[i].begin + pieces[i].elements, begin, end);
            finite = reduce_in_bucket(begin, from) && finite;
            finite = reduce_piece(i, from, to) && finite;
            begin = to;
        }
        return reduce_in_bucket(begin, end) && finite;
    }
    [[nodiscard]] bool reduce_piece(std::size_t piece, std::int64_t begin, std::int64_t end) {
        const auto offset =
            static_cast<std::size_t>(begin - pieces_->pieces()[piece].begin) * element_;
        factors_.clear();
        pointers_.clear();
        for (int rank = 0; rank < node_->size(); ++rank) {
            factors_.push_back(pieces_->factor(rank, piece));
            pointers_.push_back(factors_.back() == 0 ? data_in(rank, begin)
                                                     : pieces_->data(rank, piece) + offset);
        }
        return reduce(end - begin);
    }

    /// Reduces `elements` at pointers_, by rank, times factors_ other than 0. Writes the result
    /// there: of all ranks, or with several nodes of this one.
    [[nodiscard]] bool reduce(std::int64_t elements) {
        const auto own = static_cast<std::size_t>(node_->rank());
        const std::span<std::byte*> all(pointers_);
        const auto targets = across_ ? all.subspan(own, 1) : all;
        const bool check = checks_ && !across_;
        const bool scales =
            std::any_of(factors_.begin(), factors_.end(), [](float factor) { return factor != 0; });
        constexpr std::size_t in_cache = 8192; // bytes, with those of a few other ranks
        const std::int64_t block =
            check || scales ? static_cast<std::int64_t>(in_cache / element_) : elements;
        scaled_.resize(scales ? pointers_.size() * in_cache : 0);
        bool finite = true;
        for (std::int64_t begin = 0; begin < elements; begin += block) {
            const std::int64_t count = std::min(block, elements - begin);
            sources_.assign(pointers_.begin(), pointers_.end());
            for (std::size_t rank = 0; rank < pointers_.size(); ++rank) {
                if (factors_[rank] != 0) {
                    std::byte* const to = scaled_.data() + rank * in_cache;
                    kernels::scale(to, pointers_[rank], factors_[rank], count);
                    sources_[rank] = to;
                }
            }
            here_.run(targets, sources_, count);
            finite = finite && (!check || all_finite(call_.type, targets[0], count));
            const auto bytes = static_cast<std::size_t>(count) * element_;
            std::for_each(pointers_.begin(), pointers_.end(), [&](auto& data) { data += bytes; });
        }
        return finite;
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
    std::shared_ptr<BucketPieces> pieces_;
    std::vector<std::byte*> pointers_; ///< by rank: what is reduced next
    std::vector<float> factors_;       ///< of it; 0: as it is
    std::vector<const std::byte*> sources_;
    std::vector<std::byte> scaled_; ///< a block for each rank
    Phase phase_ = Phase::done;
    bool checks_ = false;
    bool finite_ = true;
};

} // namespace rtrain::comm
