// SPDX-License-Identifier: Apache-2.0
// One copy of the weights for each NUMA node. nodes.py --numa plays two of them; the ranks bind
// themselves to the cores of one.
#include "model/sharded/models.hpp"
#include "support/training.hpp"

#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/process/os/numa.hpp>
#include <rtrain/tune/resources/this_machine.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sharded_numa_test {

using namespace test;
using rtrain::detail::cores_of_this_machine;
using rtrain::detail::OnCores;

/// Of each local rank, the core that it binds itself to: the first ranks to the first cores.
int core_of(const std::vector<int>& cores, int local_rank, int local_size) {
    return cores[static_cast<std::size_t>(local_rank) * cores.size() /
                 static_cast<std::size_t>(local_size)];
}

rtrain::comm::BlockOwners owners_of(const Sharded<MlpImpl>& model) {
    return model.prepared()->weights()->owners();
}

} // namespace sharded_numa_test

using namespace sharded_numa_test;

TEST_CASE("ShardedNuma.the_node_of_all_cores_is_found") {
    const test::Directory directory("numa-" + std::to_string(::getpid()));
    const int core = cores_of_this_machine().front();
    const auto describe = [&](int node, const std::string& list) {
        const auto folder = directory.path() / ("node" + std::to_string(node));
        std::filesystem::create_directories(folder);
        test::write(folder / "cpulist", list + "\n");
    };
    const auto found = [&] { return rtrain::detail::numa_node(directory.path()); };
    CHECK(rtrain::detail::numa_node(directory.path() / "none") == 0);
    const OnCores bound({core});
    describe(0, ""); // of memory only
    describe(3, std::to_string(core) + "-" + std::to_string(core + 2) + ",1022");
    describe(11, "1000-1010,1023");
    CHECK(found() == 3);
    describe(3, "1000-1010");
    describe(11, "1020-1022," + std::to_string(core));
    CHECK(found() == 11);
    describe(3, "0-1023");
    CHECK_FALSE(found());
}

TEST_CASE("ShardedNuma.ranks_of_numa_nodes_exchange_as_nodes_do") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return; // the bare model
    }
    const Place place = expected_place();
    const OnCores bound({core_of(cores_of_this_machine(), place.local_rank, place.local_size)});
    const auto mine = rtrain::detail::numa_node();
    REQUIRE(mine);
    const auto theirs = ranks.mpi->all_gather(torch::tensor({*mine}, torch::kInt));
    const auto numa = [](ShardedOptions how) {
        how.share = Share::numa;
        return how;
    };
    if (ranks_of_nodes().size() == 1) {
        const int nodes = theirs.max().item<int>() + 1;
        auto model = shard(ranks, make_mlp(), numa({}));
        CHECK(owners_of(model).nodes == nodes);
        CHECK(owners_of(model).places == ranks.size() / nodes);
    }
    // Sums are grouped by NUMA node.
    using torch::optim::SGD;
    const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
    const auto compare_numa = [&](const ShardedOptions& how) {
        compare<MlpImpl, SGD>(ranks, make_mlp, options, {}, mlp_step(ranks), 1e-6, numa(how));
    };
    compare_numa({});
    compare_numa({.level = Shard::gradients});
    compare_numa({.level = Shard::gradients, .step_in_backward = true});
    compare_numa({.level = Shard::optimizer});
    compare<KindsImpl, SGD>(ranks, make_kinds, torch::optim::SGDOptions(1e-3), {},
                            kinds_step(ranks), 1e-6, numa({.level = Shard::gradients}));

    auto divided = shard(ranks, make_mlp(), numa({}));
    auto whole = ranks.prepare(make_mlp());
    auto optimizer = prepared(SGD(divided->parameters(), options), divided);
    auto whole_optimizer = prepared(SGD(whole->parameters(), options), whole);
    for (int i = 0; i < 3; ++i) {
        mlp_step(ranks)(divided, optimizer, i);
        mlp_step(ranks)(whole, whole_optimizer, i);
    }
    divided.gathered([&](MlpImpl& module) {
        require_same_parameters(*whole.ptr(), module, 1e-6);
        for (const auto& parameter : module.parameters()) {
            CHECK(ranks.agree(parameter));
        }
    });
    divided.edit([](MlpImpl& module) { module.parameters()[0].fill_(3); });
    divided.gathered(
        [&](MlpImpl& module) { CHECK(module.parameters()[0].eq(3).all().item<bool>()); });
}

TEST_CASE("ShardedNuma.ranks_that_are_not_bound_share_with_their_machine") {
    Ranks ranks;
    if (ranks.size() == 1 || ranks_of_nodes().size() > 1) {
        return;
    }
    auto model = shard(ranks, make_mlp(), {.share = Share::numa});
    CHECK(owners_of(model).nodes == 1); // also where there is one NUMA node
    CHECK(owners_of(model).places == ranks.size());
}
