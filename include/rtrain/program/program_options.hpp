// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a ProgramTrainer. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/config/config_value.hpp>
#include <rtrain/program/rendezvous.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rtrain {

struct ProgramOptions {
    /// The program and its arguments: {"python3", "train.py", "--lr", "0.1"}.
    std::vector<std::string> command{};
    /// Environment variables of all ranks, on top of this process's.
    std::map<std::string, std::string> environment{};
    /// The variables by which ranks find each other.
    Rendezvous rendezvous = rendezvous::Torch{};
    /// Unset `num_workers` is one rank. `gpus_per_worker` counts only with `use_gpu`; then
    /// CUDA_VISIBLE_DEVICES has the GPUs of each rank. `mpirun_args` requires MPI's rendezvous, or
    /// names hosts.
    ScalingConfig scaling{};
    /// `failure.hang.idle_s` is 300 s unless set to another value than HangConfig's default: a
    /// program does not report its progress. Ranks that use no processor for that long hang.
    RunConfig run{};
    /// The configuration, as JSON in the variable RTRAIN_CONFIG of each rank.
    Config config{};
    /// Paths of data sets by name, as JSON in the variable RTRAIN_DATASETS of each rank.
    std::map<std::string, std::string> datasets{};
    /// The checkpoint that get_checkpoint() returns until the run has its own.
    std::optional<Checkpoint> resume_from{};
    /// Python modules that a server on each machine imports once, for all ranks and restarts: it
    /// forks ranks, which run the script. Needs the Python module rtrain.
    std::vector<std::string> preload{};
    /// Name or path of the tool rtrain of the same release, as the parent of each rank; empty: this
    /// program. A parent that links libtorch starts in a quarter of a second, the tool in 3 ms.
    std::string tool{};
};

} // namespace rtrain
