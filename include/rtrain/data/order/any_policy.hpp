// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased data policy, for the batches of a rank, which are compiled once for all policies.
#pragma once

#include <rtrain/data/order/policy.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::data {

/// Any data policy; copies share it. For its optional members see policy.hpp.
class AnyPolicy {
public:
    template <class D>
    requires(!std::same_as<D, AnyPolicy> && DataPolicy<D>)
        AnyPolicy(D policy) // NOLINT(google-explicit-constructor)
        : held_(std::make_shared<Model<D>>(std::move(policy))) {}

    /// Empty if it has no name.
    [[nodiscard]] std::string name() const { return held_->name(); }
    [[nodiscard]] std::int64_t ranks_sharing(int size) const { return held_->ranks_sharing(size); }

    /// True if order() begins after `taken` rows of all ranks; else it is the whole epoch.
    [[nodiscard]] bool has_rest() const { return held_->has_rest(); }
    [[nodiscard]] at::Tensor order(const EpochRequest& epoch, std::int64_t taken) const {
        return held_->order(epoch, taken);
    }

    /// True if it has rows_at(), which must not be called otherwise.
    [[nodiscard]] bool has_rows_at() const { return held_->has_rows_at(); }
    [[nodiscard]] at::Tensor rows_at(const EpochRequest& epoch, std::int64_t begin,
                                     std::int64_t end) const {
        return held_->rows_at(epoch, begin, end);
    }

    /// Empty if it does not read blocks.
    [[nodiscard]] std::optional<std::int64_t> lanes() const { return held_->lanes(); }

    /// True if shuffled blocks that do not fit in memory are read as by data::Streaming.
    [[nodiscard]] bool streams_shuffled_blocks() const { return held_->streams_shuffled_blocks(); }

private:
    struct Interface {
        virtual ~Interface() = default;
        [[nodiscard]] virtual std::string name() const = 0;
        [[nodiscard]] virtual std::int64_t ranks_sharing(int size) const = 0;
        [[nodiscard]] virtual bool has_rest() const = 0;
        [[nodiscard]] virtual at::Tensor order(const EpochRequest& epoch,
                                               std::int64_t taken) const = 0;
        [[nodiscard]] virtual bool has_rows_at() const = 0;
        [[nodiscard]] virtual at::Tensor rows_at(const EpochRequest& epoch, std::int64_t begin,
                                                 std::int64_t end) const = 0;
        [[nodiscard]] virtual std::optional<std::int64_t> lanes() const = 0;
        [[nodiscard]] virtual bool streams_shuffled_blocks() const = 0;
    };

    template <class D>
    struct Model final : Interface {
        explicit Model(D given) : policy(std::move(given)) {}
        [[nodiscard]] std::string name() const override {
            if constexpr (detail::HasOrderName<D>) {
                return D::name;
            } else {
                return {};
            }
        }
        [[nodiscard]] std::int64_t ranks_sharing(int size) const override {
            return policy.ranks_sharing(size);
        }
        [[nodiscard]] bool has_rest() const override { return detail::HasRest<D>; }
        [[nodiscard]] at::Tensor order(const EpochRequest& epoch,
                                       std::int64_t taken) const override {
            if constexpr (detail::HasRest<D>) {
                return policy.order(epoch, taken);
            } else {
                return policy.order(epoch);
            }
        }
        [[nodiscard]] bool has_rows_at() const override { return detail::HasRowsAt<D>; }
        [[nodiscard]] at::Tensor rows_at(const EpochRequest& epoch, std::int64_t begin,
                                         std::int64_t end) const override {
            if constexpr (detail::HasRowsAt<D>) {
                return policy.rows_at(epoch, begin, end);
            } else {
                return {};
            }
        }
        [[nodiscard]] bool streams_shuffled_blocks() const override {
            return requires {
                requires D::streams_shuffled_blocks;
            };
        }
        [[nodiscard]] std::optional<std::int64_t> lanes() const override {
            if constexpr (detail::HasLanes<D>) {
                return policy.lanes;
            } else {
                return std::nullopt;
            }
        }
        D policy;
    };

    std::shared_ptr<const Interface> held_;
};

} // namespace rtrain::data
