// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the checkpoint that a run resumes from, and reads its state.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/run/resumable.hpp>

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace rtrain::detail {

/// Returns true if all ranks find a checkpoint intact, and rejects it otherwise; each reads a
/// share. *Collective.*
[[nodiscard]] inline bool verify_or_reject(HookRanks& backend, checkpoint::Store& store,
                                           const Checkpoint& candidate) {
    std::string damage;
    succeed_together(backend, [&] {
        try {
            if (store.staging().is_local()) {
                checkpoint::verify(candidate.path, backend.rank(), backend.size());
            } else {
                (void)candidate.as_directory(); // verifies what it downloads
            }
        } catch (const CheckpointError& error) {
            damage = error.message();
        } catch (const StorageError& error) {
            if (!store.staging().is_local()) {
                throw; // the service may recover
            }
            damage = error.message();
        }
    });
    for (const std::string& found : all_gather(backend, damage)) {
        if (!found.empty()) {
            if (backend.rank() == 0) {
                store.reject(candidate.path.filename().string(), found);
            }
            return false;
        }
    }
    return true;
}

/// Returns the newest intact checkpoint of a run; empty for a new run. Warns about damaged ones,
/// and those in rank 0's `skip` unless they are the only ones, and leaves them in place.
/// *Collective.* Throws CheckpointError [RT-K1, RT-K2] if there are checkpoints, but none is
/// intact: starting over would repeat completed training.
[[nodiscard]] inline std::optional<Checkpoint>
newest_valid(HookRanks& backend, checkpoint::Store& store,
             const std::vector<std::string>& skip = {}) {
    std::string names;
    succeed_together(backend, [&] {
        if (backend.rank() == 0) {
            store.open();
            for (const std::string& name : names_to_resume_from(store, skip)) {
                names += name + "\n";
            }
        }
    });
    auto candidates = strict(std::istringstream(broadcast(backend, names, 0)));
    std::optional<Checkpoint> newest;
    for (std::string name; !newest && std::getline(candidates, name);) {
        const Checkpoint candidate = store.checkpoint(name);
        if (verify_or_reject(backend, store, candidate)) {
            newest = candidate; // keeps the downloaded copy
        }
    }
    succeed_together(backend, [&] { warn_of_damage(store, newest); }); // rank 0's list
    return newest;
}

/// Reads this rank's part of it. *Collective.*
[[nodiscard]] inline checkpoint::Snapshot
read_state(HookRanks& backend, checkpoint::AnyPolicy& policy, const Checkpoint& from) {
    checkpoint::Snapshot state;
    succeed_together(backend, [&] {
        const storage::Location at = from.location();
        state = policy.read(
            {at.filesystem.is_local() ? std::filesystem::path(at.path) : from.as_directory(),
             backend.rank(), backend.size()});
    });
    return state;
}

} // namespace rtrain::detail
