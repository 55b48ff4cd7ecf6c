// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased checkpoint policy, for a run that is compiled once for all of them.
#pragma once

#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>

#include <concepts>
#include <memory>
#include <utility>

namespace rtrain::checkpoint {

/// The capabilities of a policy, each with the fallback listed in docs/architecture.md.
class AnyPolicy {
public:
    AnyPolicy() = default;
    AnyPolicy(const AnyPolicy&) = delete;
    AnyPolicy& operator=(const AnyPolicy&) = delete;
    virtual ~AnyPolicy() = default;

    [[nodiscard]] virtual bool saves_state() const = 0;
    [[nodiscard]] virtual bool writes_in_background() const = 0;
    /// True if each rank writes its rows of a tensor that is spread over ranks.
    [[nodiscard]] virtual bool takes_rows() const = 0;
    /// Returns the part of a state that this rank passes to write().
    [[nodiscard]] virtual Snapshot select(Snapshot state, const Part& part) = 0;
    /// Writes this rank's part; returns what the policy lists of it.
    virtual Contents write(const Snapshot& state, const Part& part) = 0;
    [[nodiscard]] virtual Snapshot read(const Part& part) = 0;
};

template <CheckpointPolicy C>
class ThePolicy final : public AnyPolicy {
public:
    explicit ThePolicy(C policy) : policy_(std::move(policy)) {}

    [[nodiscard]] bool saves_state() const override { return checkpoint::saves_state<C>; }
    [[nodiscard]] bool writes_in_background() const override {
        return BackgroundCheckpointPolicy<C>;
    }
    [[nodiscard]] bool takes_rows() const override {
        return requires {
            requires C::takes_rows;
        };
    }
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) override {
        if constexpr (requires { policy_.select(std::move(state), part); }) {
            auto late = std::move(state.late);
            auto compared = std::move(state.compared);
            Snapshot mine = policy_.select(std::move(state), part);
            mine.late = std::move(late);
            mine.compared = std::move(compared);
            return mine;
        } else {
            return state;
        }
    }
    Contents write(const Snapshot& state, const Part& part) override {
        if constexpr (std::same_as<decltype(policy_.write(state, part)), Contents>) {
            return policy_.write(state, part);
        } else {
            policy_.write(state, part);
            return {};
        }
    }
    [[nodiscard]] Snapshot read(const Part& part) override { return policy_.read(part); }

private:
    C policy_;
};

/// Erases the type of a policy.
template <CheckpointPolicy C>
[[nodiscard]] std::shared_ptr<AnyPolicy> any_policy(C policy) {
    return std::make_shared<ThePolicy<C>>(std::move(policy));
}

} // namespace rtrain::checkpoint
