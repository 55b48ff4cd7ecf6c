// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the ranks of a program find each other: which environment variables they get.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/name_table.hpp>

#include <cstdint>
#include <variant>

namespace rtrain {

namespace rendezvous {

/// PyTorch's: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the others that torchrun sets.
struct Torch {
    bool operator==(const Torch&) const = default;
};
/// TensorFlow's: TF_CONFIG, with a worker per rank.
struct TensorFlow {
    bool operator==(const TensorFlow&) const = default;
};
/// MPI's: mpirun starts the ranks, for Horovod, mpi4py and MPI programs.
struct Mpi {
    bool operator==(const Mpi&) const = default;
};
/// No variables: the ranks do not communicate, or meet by other means.
struct None {
    bool operator==(const None&) const = default;
};

} // namespace rendezvous

using Rendezvous =
    std::variant<rendezvous::Torch, rendezvous::TensorFlow, rendezvous::Mpi, rendezvous::None>;

namespace program {

/// The alternatives of Rendezvous, in their order.
enum class Meeting : std::uint8_t { torch, tensorflow, mpi, none };

inline constexpr auto meeting_names =
    detail::name_table<Meeting>({{Meeting::torch, "torch"},
                                 {Meeting::tensorflow, "tensorflow"},
                                 {Meeting::mpi, "mpi"},
                                 {Meeting::none, "none"}});

[[nodiscard]] inline Meeting meeting_of(const Rendezvous& rendezvous) noexcept {
    return static_cast<Meeting>(rendezvous.index());
}

} // namespace program
} // namespace rtrain
