// SPDX-License-Identifier: Apache-2.0
/// @file
/// The conformance suite of CheckpointPolicy: tests what the concept cannot check, for custom
/// types.
///
/// @code
/// #include <doctest/doctest.h>
/// #include <rtrain/testing/checkpoint_policy.hpp>
///
/// RTRAIN_TEST_CHECKPOINT_POLICY(Compressed, Compressed{.level = 3});
/// @endcode
///
/// defines test cases "CheckpointPolicy.Compressed.gives_back_the_whole_state" and so on. They
/// simulate the ranks one after another, in one process.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/pieces.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/policy/host_copy.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/testing/scratch.hpp>
#include <rtrain/testing/suite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::testing {

/// Where ranks write: all into the checkpoint, as on a shared file system, or each into its own
/// directory, as on a storage service. Those are merged afterwards.
enum class Layout : unsigned char {
    together, ///< all into one
    apart     ///< each into its own
};

/// Commits after the ranks' writes, as a run does. `contents`: the files they listed, by rank;
/// unlisted files are read and listed.
inline void commit(const std::filesystem::path& directory,
                   std::vector<checkpoint::Contents> contents) {
    checkpoint::Manifest manifest;
    manifest.ranks = static_cast<int>(contents.size());
    for (checkpoint::Contents& of_rank : contents) {
        merge(manifest.contents, std::move(of_rank));
    }
    merge(manifest.contents, checkpoint::unlisted_files(directory, manifest.contents));
    check(manifest.contents, checkpoint::Listed::completely);
    storage::replace_file(directory / checkpoint::manifest_file, manifest_text(manifest));
}

/// Writes a checkpoint of state shared by `ranks` ranks.
inline void write_checkpoint(checkpoint::AnyPolicy& policy, const std::filesystem::path& directory,
                             const checkpoint::Snapshot& state, int ranks,
                             Layout layout = Layout::together) {
    std::vector<checkpoint::Contents> contents;
    for (int rank = 0; rank < ranks; ++rank) {
        const ScratchDirectory own;
        const checkpoint::Part part{layout == Layout::together ? directory : own.path(), rank,
                                    ranks};
        contents.push_back(policy.write(policy.select(state, part), part));
        for (const std::string& name : checkpoint::names_of_files(own.path())) {
            DOCTEST_CHECK_FALSE(std::filesystem::exists(directory / name));
            std::filesystem::create_directories((directory / name).parent_path());
            std::filesystem::copy_file(own.path() / name, directory / name);
        }
    }
    commit(directory, std::move(contents));
}

/// Tests of rtrain's requirements for a checkpoint policy; run by RTRAIN_TEST_CHECKPOINT_POLICY.
class CheckpointPolicySuite {
public:
    template <CheckpointPolicy C>
    explicit CheckpointPolicySuite(C policy)
        : policy_(std::make_unique<checkpoint::ThePolicy<C>>(std::move(policy))) {}

    /// Loads on any number of ranks, whatever number wrote it.
    void gives_back_the_whole_state() { check_return(Layout::together); }

    void does_without_a_directory_of_all_ranks() { check_return(Layout::apart); }

    /// Later training does not change it. A policy that writes in the background gets a copy, and
    /// must not read anything else.
    void keeps_the_state_of_its_moment() {
        if (saves_nothing()) {
            return;
        }
        const ScratchDirectory directory;
        const checkpoint::Snapshot then = some_state();
        std::vector<checkpoint::Contents> contents;
        for (int rank = 0; rank < 3; ++rank) {
            const checkpoint::Part part{directory.path(), rank, 3};
            const checkpoint::Snapshot now = copy_of(then);
            checkpoint::Snapshot mine = policy_->select(now, part);
            checkpoint::HostCopy copy;
            if (policy_->writes_in_background()) {
                mine = copy(std::move(mine));
                overwrite(now);
            }
            contents.push_back(policy_->write(mine, part));
            overwrite(now);
            overwrite(mine);
        }
        commit(directory.path(), std::move(contents));
        check_same(policy_->read({directory.path(), 0, 1}), then);
    }

    /// For a tensor that no rank has as a whole, either every rank's rows are saved, or a
    /// CheckpointError is thrown: no rows are silently lost.
    void saves_rows_of_ranks_or_refuses_them() {
        if (saves_nothing()) {
            return;
        }
        const ScratchDirectory directory;
        const at::Tensor table = at::arange(30, at::kFloat).view({10, 3});
        const std::vector<std::int64_t> begins{0, 3, 3, 9, 10}; // uneven, one rank has none
        std::vector<checkpoint::Contents> contents;
        try {
            for (std::size_t rank = 0; rank < 4; ++rank) {
                const at::Tensor rows = table.slice(0, begins[rank], begins[rank + 1]);
                checkpoint::Snapshot state;
                state.pieces["table"] = {{10, 3}, {{begins[rank] * 3, rows}}, true};
                const checkpoint::Part part{directory.path(), static_cast<int>(rank), 4};
                contents.push_back(policy_->write(policy_->select(state, part), part));
            }
        } catch (const CheckpointError&) {
            DOCTEST_CHECK_FALSE(policy_->takes_rows());
            return;
        }
        commit(directory.path(), std::move(contents));
        const checkpoint::Snapshot loaded = policy_->read({directory.path(), 0, 1});
        const auto pieces = loaded.pieces.find("table");
        const auto whole = loaded.tensors.find("table");
        DOCTEST_CHECK((pieces != loaded.pieces.end()
                           ? assemble(pieces->second).equal(table)
                           : whole != loaded.tensors.end() && whole->second.equal(table)));
    }

    void refuses_a_directory_without_a_checkpoint() {
        const ScratchDirectory directory;
        DOCTEST_CHECK_THROWS_AS(static_cast<void>(policy_->read({directory.path(), 0, 1})),
                                CheckpointError);
    }

    /// Training waits for select() even if write() runs in the background, so select() copies
    /// nothing.
    void selects_views() {
        const checkpoint::Snapshot state = some_state();
        std::vector<const void*> memory;
        for (const auto& [name, tensor] : state.tensors) {
            memory.push_back(tensor.storage().data());
        }
        for (int rank = 0; rank < 3; ++rank) {
            const checkpoint::Snapshot mine = policy_->select(state, {"nowhere", rank, 3});
            std::string copied;
            for (const auto& [name, tensor] : mine.tensors) {
                copied += holds(memory, tensor) ? "" : name + ' ';
            }
            for (const auto& [name, whole] : mine.pieces) {
                const auto of = state.tensors.find(name);
                const bool flat = of != state.tensors.end() && of->second.is_contiguous();
                for (const auto& piece :
                     whole.pieces) { // pieces of non-contiguous tensors are not views
                    copied += !flat || holds(memory, piece.elements) ? "" : name + ' ';
                }
            }
            DOCTEST_CHECK(copied == "");
        }
    }

private:
    [[nodiscard]] bool saves_nothing() const {
        if (!policy_->saves_state()) {
            DOCTEST_MESSAGE("the policy saves no state");
        }
        return !policy_->saves_state();
    }

    void check_return(Layout layout) {
        const checkpoint::Snapshot state = some_state();
        for (const int ranks : {1, 2, 3, 5, 9}) {
            DOCTEST_CAPTURE(ranks);
            const ScratchDirectory directory;
            if (!policy_->saves_state()) {
                (void)policy_->write(state, {directory.path(), ranks - 1, ranks});
                DOCTEST_CHECK(std::filesystem::is_empty(directory.path()));
                continue;
            }
            write_checkpoint(*policy_, directory.path(), state, ranks, layout);
            check_same(policy_->read({directory.path(), 0, 1}), state);
            check_same(policy_->read({directory.path(), 3, 4}), state);
        }
    }

    /// All kinds of tensors, and values.
    [[nodiscard]] static checkpoint::Snapshot some_state() {
        checkpoint::Snapshot state;
        for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
            state.tensors[std::string("types/") + c10::toString(type)] =
                at::arange(105, at::kLong).remainder(11).view({15, 7}).to(type);
        }
        state.tensors["large"] = at::arange(1001, at::kDouble) / 3;
        state.tensors["empty"] = at::empty({0, 4});
        state.tensors["scalar"] = at::scalar_tensor(2.5, at::kDouble);
        state.tensors["strided"] = at::arange(64 * 64, at::kFloat).view({64, 64}).t();
        state.values = {{"n", 1}, {"text", "a\n\"b\""}, {"nested", {{"x", 0.1}, {"list", {1, 2}}}}};
        return state;
    }

    [[nodiscard]] static checkpoint::Snapshot copy_of(checkpoint::Snapshot state) {
        for (auto& [name, tensor] : state.tensors) {
            tensor = tensor.clone();
        }
        return state;
    }

    static void overwrite(const checkpoint::Snapshot& state) {
        for (const auto& [name, tensor] : state.tensors) {
            at::Tensor(tensor).zero_();
        }
        for (const auto& [name, whole] : state.pieces) {
            for (const auto& piece : whole.pieces) {
                at::Tensor(piece.elements).zero_();
            }
        }
    }

    static void check_same(const checkpoint::Snapshot& loaded, const checkpoint::Snapshot& state) {
        DOCTEST_CHECK((loaded.values == state.values));
        DOCTEST_CHECK(loaded.tensors.size() == state.tensors.size());
        DOCTEST_CHECK(loaded.pieces.empty());
        std::string different;
        for (const auto& [name, tensor] : state.tensors) {
            const auto found = loaded.tensors.find(name);
            const bool same = found != loaded.tensors.end() &&
                              found->second.scalar_type() == tensor.scalar_type() &&
                              found->second.equal(tensor);
            different += same ? "" : name + ' ';
        }
        DOCTEST_CHECK(different == "");
    }

    /// True if a tensor is in the memory of one of those.
    [[nodiscard]] static bool holds(const std::vector<const void*>& memory,
                                    const at::Tensor& tensor) {
        return tensor.numel() == 0 ||
               std::find(memory.begin(), memory.end(), tensor.storage().data()) != memory.end();
    }

    std::unique_ptr<checkpoint::AnyPolicy> policy_;
};

} // namespace rtrain::testing

/// RTRAIN_TEST_CHECKPOINT_POLICY(name, expression);
/// `expression` constructs a policy.
#define RTRAIN_TEST_CHECKPOINT_POLICY(NAME, ...)                                                   \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, gives_back_the_whole_state, __VA_ARGS__)                \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, does_without_a_directory_of_all_ranks, __VA_ARGS__)     \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, keeps_the_state_of_its_moment, __VA_ARGS__)             \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, saves_rows_of_ranks_or_refuses_them, __VA_ARGS__)       \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, refuses_a_directory_without_a_checkpoint, __VA_ARGS__)  \
    RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, selects_views, __VA_ARGS__)                             \
    static_assert(true)
/// One test case of RTRAIN_TEST_CHECKPOINT_POLICY.
#define RTRAIN_TESTING_CHECKPOINT_POLICY(NAME, HOLDS, ...)                                         \
    RTRAIN_TESTING_CASE("CheckpointPolicy", NAME, CheckpointPolicySuite, HOLDS, __VA_ARGS__)
