// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random number generators, saved for every rank.
#pragma once

#include <rtrain/data/order/permutation.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace rtrain::checkpoint {

/// Loads into `generator` the state that rank `rank` saved as `name`/<rank>. A rank that did not
/// exist then gets the state of the others if all are equal. Otherwise its state is derived from
/// rank 0's and the rank number. Does nothing if the checkpoint has none.
inline void load_generator(at::Generator generator, const StateReader& in, const std::string& name,
                           int rank) {
    const auto of = [&](int other) { return name + "/" + std::to_string(other); };
    if (in.has_tensor(of(rank))) {
        generator.set_state(in.tensor(of(rank)).clone());
        return;
    }
    if (!in.has_tensor(of(0))) {
        return;
    }
    const at::Tensor first = in.tensor(of(0)).clone();
    bool all_same = true;
    for (int other = 1; in.has_tensor(of(other)); ++other) {
        all_same = all_same && in.tensor(of(other)).equal(first);
    }
    if (all_same) {
        generator.set_state(first);
        return;
    }
    std::uint64_t seed = data::hash_of(rank);
    const auto* const bytes = first.const_data_ptr<std::uint8_t>();
    for (std::int64_t i = 0; i < first.numel(); ++i) {
        seed = data::hash_of(seed, bytes[i]);
    }
    generator.set_current_seed(seed);
}

} // namespace rtrain::checkpoint
