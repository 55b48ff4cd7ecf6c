#pragma once
#include <rtrain/config.hpp>
namespace rtrain::launch {
struct Placement {
    int ranks = 1;
    std::vector<std::string> arguments;
    bool remote = false;
};
inline Placement place_ranks(const ScalingConfig& s) {
    return {s.num_workers.value_or(1), s.mpirun_args, false};
}
} // namespace rtrain::launch
