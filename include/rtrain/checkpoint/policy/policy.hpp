// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint policy: writes a state to the files of a checkpoint and reads it back. All policies
/// share the code that takes, commits, ranks and deletes checkpoints (checkpoint/store/store.hpp).
///
/// The smallest type that satisfies the concept; it saves nothing:
/// @code
/// using namespace rtrain::checkpoint;
/// struct Forgetful {
///     void write(const Snapshot& state, const Part& part) {}
///     Snapshot read(const Part& part) { return {}; }
/// };
/// @endcode
/// Cost tier 0: std only.
#pragma once

#include <concepts>
#include <filesystem>
#include <utility>

namespace rtrain {
namespace checkpoint {

struct Snapshot;

/// A rank's share in writing or reading one checkpoint.
struct Part {
    std::filesystem::path directory; ///< the checkpoint's files; while writing, not yet committed
    int rank = 0;
    int size = 1;
};

} // namespace checkpoint

namespace detail {

template <class C>
concept HasWrite = requires(C& policy, const checkpoint::Snapshot& state,
                            const checkpoint::Part& part) {
    policy.write(state, part);
};
// decltype alone allows Snapshot to be incomplete.
template <class C>
concept HasRead =
    std::same_as<decltype(std::declval<C&>().read(std::declval<const checkpoint::Part&>())),
                 checkpoint::Snapshot>;

} // namespace detail

/// Members of every checkpoint policy. `write`, called on every rank with the same state, writes
/// this rank's part of it into the directory and returns when the bytes are durable. `read`, called
/// on any number of ranks, returns the whole state.
template <class C>
concept CheckpointPolicy = std::movable<C> && detail::HasWrite<C> && detail::HasRead<C>;

/// Optional: `static constexpr bool writes_in_background = true`; `write` is then called in another
/// thread, with a copy of the selected state.
template <class C>
concept BackgroundCheckpointPolicy = CheckpointPolicy<C> && C::writes_in_background;

namespace checkpoint {

/// Optional: `static constexpr bool saves_state = false`; reports of states then record only
/// metrics.
template <class C>
inline constexpr bool saves_state = true;
template <class C>
requires requires {
    C::saves_state;
}
inline constexpr bool saves_state<C> = C::saves_state; ///< for a policy that declares it

} // namespace checkpoint

/// Explains why `C` is not a checkpoint policy: one static_assert for each unmet requirement.
template <class C>
struct ExplainCheckpointPolicy {
    static_assert(std::movable<C>,
                  "rtrain: CheckpointPolicy not met: the type must be movable [RT-Q1]");
    static_assert(detail::HasWrite<C>, "rtrain: CheckpointPolicy not met: missing member "
                                       "`void write(const Snapshot&, const Part&)` [RT-Q2]");
    static_assert(detail::HasRead<C>, "rtrain: CheckpointPolicy not met: missing member "
                                      "`Snapshot read(const Part&)` [RT-Q3]");
};

} // namespace rtrain
