// SPDX-License-Identifier: Apache-2.0
/// @file
/// The environment variables of a rank. Of those that the user has set, only ranks, addresses and
/// ports are overwritten.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/program/place.hpp>
#include <rtrain/program/plan.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/resources/this_machine.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

using Variables = std::map<std::string, std::string>;

/// GPUs of a rank, by their index among `gpus`: ranks take them in order, and share one if `each`
/// is below 1. Throws ConfigError [RT-E2].
[[nodiscard]] inline std::vector<int> gpus_of_rank(const RankPlace& place, double each, int gpus) {
    const bool shared = each < 1;
    const int count = shared ? 1 : static_cast<int>(each);
    const int first =
        shared ? place.local_rank / tune::internal::times(1, each) : place.local_rank * count;
    if (first + count > gpus) {
        throw ConfigError("RT-E2",
                          detail::concat("rank ", place.rank, " needs ", each, " GPUs, as the ",
                                         place.local_size, " ranks of its machine, which has only ",
                                         gpus, "; reduce --gpus-per-worker or the ranks"));
    }
    std::vector<int> own(static_cast<std::size_t>(count));
    std::iota(own.begin(), own.end(), first);
    return own;
}

[[nodiscard]] inline Variables torch_variables(const RankPlace& place, const ProgramPlan& plan) {
    const int limit = plan.max_restarts < 0 ? std::numeric_limits<int>::max() : plan.max_restarts;
    const auto text = [](int number) { return std::to_string(number); };
    return {{"RANK", text(place.rank)},
            {"WORLD_SIZE", text(place.size)},
            {"LOCAL_RANK", text(place.local_rank)},
            {"LOCAL_WORLD_SIZE", text(place.local_size)},
            {"NODE_RANK", text(place.node)},
            {"GROUP_RANK", text(place.node)},
            {"GROUP_WORLD_SIZE", text(place.nodes)},
            {"ROLE_NAME", "default"},
            {"ROLE_RANK", text(place.rank)},
            {"ROLE_WORLD_SIZE", text(place.size)},
            {"MASTER_ADDR", plan.address},
            {"MASTER_PORT", text(plan.ports.at(0))},
            {"TORCHELASTIC_RUN_ID", plan.run},
            {"TORCHELASTIC_RESTART_COUNT", text(plan.restarts)},
            {"TORCHELASTIC_MAX_RESTARTS", text(limit)},
            {"TORCHELASTIC_USE_AGENT_STORE", "False"}}; // rank 0 has the store
}

[[nodiscard]] inline std::string tf_config(const RankPlace& place, const ProgramPlan& plan) {
    boost::json::array workers;
    for (std::size_t i = 0; i < plan.ports.size(); ++i) {
        const std::string& host = plan.hosts.empty() ? plan.address : plan.hosts.at(i);
        workers.emplace_back(detail::concat(host, ':', plan.ports[i]));
    }
    return json::serialize({{"cluster", {{"worker", workers}}},
                            {"task", {{"type", "worker"}, {"index", place.rank}}}});
}

/// Throws ConfigError [RT-E2].
[[nodiscard]] inline Variables rank_environment(const RankPlace& place, const ProgramPlan& plan) {
    Variables variables;
    if (plan.meeting == Meeting::torch) {
        variables = torch_variables(place, plan);
    } else if (plan.meeting == Meeting::tensorflow) {
        variables["TF_CONFIG"] = tf_config(place, plan);
    }
    const auto cores = detail::cores_of_this_machine().size();
    const auto share = std::max<std::size_t>(1, cores / static_cast<std::size_t>(place.local_size));
    for (const auto& [name, value] : Variables{{"OMP_NUM_THREADS", std::to_string(share)},
                                               {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                               {"PYTHONUNBUFFERED", "1"},
                                               {"PYTHONFAULTHANDLER", "1"}}) {
        if (std::getenv(name.c_str()) == nullptr) {
            variables[name] = value;
        }
    }
    if (plan.threads > 0) {
        variables["OMP_NUM_THREADS"] = std::to_string(plan.threads);
    }
    if (plan.gpus > 0) {
        variables["CUDA_VISIBLE_DEVICES"] = detail::visible_devices_of(
            gpus_of_rank(place, plan.gpus, detail::gpus_of_this_machine()));
    }
    return variables;
}

} // namespace rtrain::program
