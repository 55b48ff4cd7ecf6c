// SPDX-License-Identifier: Apache-2.0
/// @file
/// Declarations and default template arguments, for headers that only name a trainer; one .cpp then
/// includes rtrain/trainer.hpp. Also the `Trainer` that an invalid policy selects.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>
#include <rtrain/data/order/policy.hpp>

namespace rtrain {

namespace backend {
class Local;
class Mpi;
class Nccl;
} // namespace backend

namespace data {
struct Sharded;
struct Replicated;
struct Permuted;
struct Streaming;
} // namespace data

namespace checkpoint {
struct None;
struct Sync;
struct Async;
struct Sharded;
struct AsyncSharded;
} // namespace checkpoint

struct Result;
struct TrainerOptions;

/// Selected only if a policy does not satisfy its concept: the compiler then shows only that
/// explanation, because all members used with a trainer are declared.
template <class B = backend::Mpi, class D = data::Sharded, class C = checkpoint::Sync>
class Trainer : ExplainBackend<B>, ExplainDataPolicy<D>, ExplainCheckpointPolicy<C> {
public:
    explicit Trainer(TrainerOptions options);
    Trainer(TrainerOptions options, B backend, D data = {}, C checkpoint = {});
    template <class Directory, class... More>
    static bool can_restore(const Directory& run_directory, const More&... more);
    template <class Directory, class... More>
    static Trainer restore(const Directory& run_directory, const More&... more);
    template <class F>
    Result fit(F&& train_function);
};

/// The first argument of a training function: `rtrain::Worker<>&` with the default policies.
template <class B = backend::Mpi, class D = data::Sharded, class C = checkpoint::Sync>
class Worker;

} // namespace rtrain
