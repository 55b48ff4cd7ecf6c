// SPDX-License-Identifier: Apache-2.0
// Moments on a disk: the bits of moments in memory.
#include "model/sharded/models.hpp"
#include "support/file_limit.hpp"
#include "support/thrown.hpp"
#include "support/training.hpp"

#include <rtrain/comm/communicator.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/storage/file/scratch_file.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>

using namespace test;

namespace {

/// Of parameters that are large enough to have their moments on the disk, and small ones.
std::shared_ptr<MlpImpl> make_large() {
    return std::make_shared<MlpImpl>(std::vector<std::int64_t>{9, 700, 1900, 40, 3});
}

/// What an optimizer keeps, where it lies.
std::vector<at::Tensor> kept_by(torch::optim::Optimizer& optimizer) {
    std::vector<at::Tensor> kept;
    for (const auto& part : optimizer.param_groups()[0].params()) {
        checkpoint::visit_optimizer_state(
            optimizer, part, [&](const char*, at::Tensor& tensor) { kept.push_back(tensor); });
    }
    return kept;
}

/// Whether this process has the memory as a file of the directory.
bool is_in_file(const void* data) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        std::sscanf(line.c_str(), "%lx-%lx", &begin, &end);
        const auto address = reinterpret_cast<std::uintptr_t>(data);
        if (begin <= address && address < end) {
            return line.find("(deleted)") != std::string::npos &&
                   line.find("memfd") == std::string::npos;
        }
    }
    return false;
}

} // namespace

TEST_CASE("ScratchFile.keeps_what_has_been_dropped") {
    const Directory of_all_ranks("scratch");
    const auto directory =
        of_all_ranks.path() / std::to_string(launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0));
    std::filesystem::create_directory(directory);
    storage::ScratchFile file(directory);
    const auto one = file.map(10000);
    const auto two = file.map(1);
    CHECK(one.bytes == 12288);
    CHECK(one.data[9999] == std::byte{0});
    std::memset(one.data, 7, one.bytes);
    std::memset(two.data, 8, 1);
    file.drop(one);
    file.drop(two);
    CHECK(one.data[0] == std::byte{7});
    CHECK(one.data[12287] == std::byte{7});
    CHECK(two.data[0] == std::byte{8});

    // Memory and what is read and written past it are the same.
    alignas(storage::ScratchFile::page) std::array<std::byte, 12288> memory{};
    one.data[4096] = std::byte{9};
    file.read(one, memory.data());
    CHECK(memory[4095] == std::byte{7});
    CHECK(memory[4096] == std::byte{9});
    memory[12287] = std::byte{10};
    file.write(one, memory.data());
    CHECK(one.data[4096] == std::byte{9});
    CHECK(one.data[12287] == std::byte{10});
    file.read(two, memory.data());
    CHECK(memory[0] == std::byte{8});
    CHECK(std::filesystem::is_empty(directory)); // it has no name
    CHECK(code_of([&] { const storage::ScratchFile none(directory / "none"); }) == "RT-S3");
}

TEST_CASE("ShardedOffload.moments_on_disk_have_the_bits_of_moments_in_memory") {
    Ranks ranks;
    const Directory directory("offload");
    using namespace torch::optim;
    const auto offloaded = [&](ShardedOptions options = {}) {
        options.offload = offload::Disk{directory.path()};
        return options;
    };
    const auto step = mlp_step(ranks);
    compare<MlpImpl, AdamW>(ranks, make_large, AdamWOptions(1e-2).amsgrad(true), {}, step, 0,
                            offloaded());
    compare<MlpImpl, SGD>(ranks, make_large, SGDOptions(0.1).momentum(0.9), {}, step, 0,
                          offloaded({.step_in_backward = true}));
    compare<MlpImpl, RMSprop>(ranks, make_large, RMSpropOptions(1e-3).momentum(0.5), {}, step, 0,
                              offloaded());
    compare<KindsImpl, AdamW>(ranks, make_kinds, AdamWOptions(1e-2), {}, kinds_step(ranks), 0,
                              offloaded());
}

TEST_CASE("ShardedOffload.what_is_loaded_goes_to_the_disk") {
    Ranks ranks;
    const Directory directory("offload-loaded");
    const ShardedOptions options{.offload = offload::Disk{directory.path()}};
    auto model = shard(ranks, make_large(), options);
    auto optimizer = prepared(torch::optim::Adam(model->parameters(), 1e-3), model);
    const auto step = mlp_step(ranks);
    step(model, optimizer, 0);
    const auto count_in_file = [](torch::optim::Optimizer& of) {
        std::int64_t elements = 0;
        for (const auto& tensor : kept_by(of)) {
            elements += is_in_file(tensor.const_data_ptr()) ? tensor.numel() : 0;
        }
        return elements;
    };
    auto moved = std::make_unique<decltype(optimizer)>(std::move(optimizer));
    step(model, *moved, 1);
    // The large ones: 700 x 1900 elements, of which each owner has its part; none on one rank.
    const bool owns = ranks.any()->communicator()->block_owners().owns();
    CHECK((count_in_file(*moved) > 0) == (owns && ranks.size() > 1));
    checkpoint::Snapshot saved;
    checkpoint::save_optimizer(*moved, StateWriter(saved, "o"));

    auto again = prepared(torch::optim::Adam(model->parameters(), 0.5), model);
    for (auto& [name, pieces] : saved.pieces) { // whole again, as a checkpoint has them
        auto whole = torch::zeros({checkpoint::element_count(pieces.shape)});
        for (const auto& piece : pieces.pieces) {
            whole.narrow(0, piece.begin, piece.elements.numel()).copy_(piece.elements);
        }
        ranks.mpi->all_reduce(whole, ReduceOp::sum);
        saved.tensors[name] = whole.view(pieces.shape);
    }
    saved.pieces.clear();
    checkpoint::load_optimizer(again, StateReader(saved, "o"));
    CHECK(count_in_file(again) == count_in_file(*moved));
    const auto mine = kept_by(again);
    const auto theirs = kept_by(*moved);
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
        CHECK(mine[i].equal(theirs[i]));
    }
    step(model, again, 2);
    for (const auto& parameter : model->parameters()) {
        CHECK(ranks.agree(parameter));
    }
}

TEST_CASE("ShardedOffload.a_disk_without_room_is_an_error") {
    Ranks ranks;
    const Directory directory("offload-full");
    auto nowhere =
        shard(ranks, make_large(), {.offload = offload::Disk{directory.path() / "none"}});
    const auto nodes = ranks_of_nodes();
    if (ranks.size() == 1 || nodes.front() != nodes.back()) {
        return; // some ranks keep no moments, or it is the bare model, which has them in memory
    }
    CHECK(code_of([&] {
              (void)prepared(torch::optim::Adam(nowhere->parameters(), 1e-3), nowhere);
          }) == "RT-S3");
    auto model = shard(ranks, make_large(), {.offload = offload::Disk{directory.path()}});
    auto optimizer = prepared(torch::optim::Adam(model->parameters(), 1e-3), model);
    const auto x = random(ranks.rank(), 0, {5, 9});
    model(x).square().mean().backward();
    std::string error;
    {
        const FileLimit few(4096);
        error = message_of([&] { optimizer.step(); });
    }
    CHECK(contains(error, "RT-S45"));
    CHECK(contains(error, directory.path().string()));
    ranks.mpi->barrier();
}
