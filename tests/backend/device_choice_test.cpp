// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/backend/device_choice.hpp>

#include <doctest/doctest.h>

#include <cmath>

using rtrain::backend::choose_device;
using rtrain::backend::DeviceRequest;
using rtrain::backend::GpuShare;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

using Visible = std::optional<std::string>;

/// The index that each of `ranks` ranks takes, all with the same list.
std::vector<int> indices(const Visible& visible, int devices, int ranks, double share = 1) {
    std::vector<int> chosen;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<Visible> all(static_cast<std::size_t>(ranks), visible);
        chosen.push_back(choose_device({all, rank, devices, share}));
    }
    return chosen;
}

using Indices = std::vector<int>;

/// How local rank `rank` shares its GPU, when the node's ranks have `devices` each.
GpuShare share(DeviceRequest request, int rank, const std::vector<int>& devices) {
    std::vector<std::string> identities;
    for (std::size_t other = 0; other < request.visible.size(); ++other) {
        request.local_rank = static_cast<int>(other);
        request.devices = devices[other];
        identities.push_back(identity_of(request, choose_device(request)));
    }
    return rtrain::backend::share_of(identities, rank);
}

} // namespace

TEST_CASE("DeviceChoice.ranks_take_the_lowest_ids_first") {
    CHECK(indices(std::nullopt, 4, 4) == Indices{0, 1, 2, 3});
    CHECK(indices(std::nullopt, 4, 2) == Indices{0, 1});
    CHECK(indices("0,1,2", 3, 3) == Indices{0, 1, 2});
    // An index counts within the list: device 1 of the node is number 1 of "3,1".
    CHECK(indices("3,1", 2, 2) == Indices{1, 0});
    CHECK(indices("10,9,2", 3, 3) == Indices{2, 1, 0}); // numbers, not texts
    CHECK(indices(" 5 , 4", 2, 2) == Indices{1, 0});
    // Names have no order of their own.
    CHECK(indices("GPU-ff01,GPU-00ab", 2, 2) == Indices{0, 1});
    CHECK(indices("MIG-b,MIG-a", 2, 2) == Indices{0, 1});
    CHECK(indices("3,GPU-00ab", 2, 2) == Indices{0, 1});
    // CUDA ends the list at an entry that does not exist; it has told how many count.
    CHECK(indices("1,0,-1,2", 2, 2) == Indices{1, 0});
}

TEST_CASE("DeviceChoice.fractions_share_and_multiples_skip") {
    // Ray Train's test_backend: half a GPU each, three workers.
    CHECK(indices("0,1", 2, 3, 0.5) == Indices{0, 0, 1});
    CHECK(indices("0,1", 2, 4, 0.5) == Indices{0, 0, 1, 1});
    CHECK(indices(std::nullopt, 1, 3, 0.3333333) == Indices{0, 0, 0});
    CHECK(indices(std::nullopt, 1, 3, 0.3) == Indices{0, 0, 0});
    CHECK(indices(std::nullopt, 2, 2, 0.6) == Indices{0, 1}); // two do not fit
    CHECK(indices(std::nullopt, 4, 2, 2) == Indices{0, 2});

    const std::vector<Visible> both(3, "0,1");
    const DeviceRequest halves{both, 0, 2, 0.5};
    CHECK(share(halves, 0, {2, 2, 2}).ranks == 2);
    CHECK(share(halves, 1, {2, 2, 2}).place == 1);
    CHECK(share(halves, 2, {2, 2, 2}).ranks == 1);
    CHECK(share(halves, 2, {2, 2, 2}).place == 0);
    // The user's own choice shares, too.
    CHECK(share({both, 0, 2, 1, 0}, 2, {2, 2, 2}).ranks == 3);
    CHECK(share({both, 0, 2, 1, 0}, 2, {2, 2, 2}).place == 2);
}

TEST_CASE("DeviceChoice.a_launcher_may_give_each_rank_its_own") {
    const std::vector<Visible> own{"2", "0", "1"};
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(choose_device({own, rank, 1}) == 0);
        CHECK(share({own}, rank, {1, 1, 1}).ranks == 1);
    }
    // Two halves of a node.
    const std::vector<Visible> halves{"0,1", "0,1", "2,3", "2,3"};
    CHECK(choose_device({halves, 1, 2}) == 1);
    CHECK(choose_device({halves, 2, 2}) == 0);
    CHECK(choose_device({halves, 3, 2}) == 1);
    CHECK(share({halves}, 3, {2, 2, 2, 2}).ranks == 1);
    // Different lists that meet on a GPU.
    const std::vector<Visible> meeting{"0,1", "0"};
    CHECK(share({meeting}, 0, {2, 1}).ranks == 2);
}

TEST_CASE("DeviceChoice.a_cgroup_gives_each_rank_its_own_number_0") { // Slurm's ConstrainDevices
    DeviceRequest request{{"0", "0", "0"}, 2, 1};
    CHECK(code_of([&] { (void)choose_device(request); }) == "RT-N2");
    request.addresses = {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}};
    CHECK(choose_device(request) == 0);
    CHECK(share(request, 2, {1, 1, 1}).ranks == 1);
    request.addresses[2] = request.addresses[0];
    CHECK(code_of([&] { (void)choose_device(request); }) == "RT-N2");
    request.gpus_per_worker = 0.5;
    CHECK(share(request, 2, {1, 1, 1}).ranks == 2);
    CHECK(share(request, 2, {1, 1, 1}).place == 1);
    // Halves of one GPU have one address and different names.
    const DeviceRequest parts{
        {"MIG-a", "MIG-b"}, 1, 1, 1, {}, {{"0000:01:00.0"}, {"0000:01:00.0"}}};
    CHECK(share(parts, 1, {1, 1}).ranks == 1);
}

TEST_CASE("DeviceChoice.what_cannot_be_is_refused") {
    const std::vector<Visible> three(3, Visible("6,7"));
    CHECK(choose_device({three, 1, 2}) == 1);
    const auto message = message_of([&] { (void)choose_device({three, 2, 2}); });
    CHECK(contains(message, "RT-N2"));
    CHECK(contains(message, "3 ranks of this node share 2 GPU(s) (CUDA_VISIBLE_DEVICES 6,7)"));
    CHECK(contains(message, "local rank 2"));
    CHECK(code_of([] { (void)choose_device({{"0"}, 0, 1, 2}); }) == "RT-N2");
    for (const double share : {0.0, -1.0, 1.5, std::nan(""), HUGE_VAL}) {
        CHECK(code_of([&] { (void)choose_device({{"0"}, 0, 1, share}); }) == "RT-N3");
    }
    CHECK(choose_device({{"4,5"}, 0, 2, 1, 1}) == 1);
    CHECK(code_of([] { (void)choose_device({{"4,5"}, 0, 2, 1, 2}); }) == "RT-N4");
    CHECK(code_of([] { (void)choose_device({{"4,5"}, 0, 2, 1, -1}); }) == "RT-N4");
}
