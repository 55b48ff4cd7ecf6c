// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `worker.prepare(model)`: those of PyTorch's DistributedDataParallel, its
/// communication hooks, and the order in which gradients are added up.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options/gradient_hook.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace rtrain {

namespace comm {
class Communicator;
}

/// Communication hooks: how a bucket of gradients is sent to the other ranks. Compression pays off
/// between nodes; within one, converting costs more than it saves.
namespace hook {

/// Sends gradients as they are.
struct None {};
/// Sends float16: half the bytes of float32, values up to 65504.
struct Float16 {};
/// Sends bfloat16: half the bytes of float32, float32's range, three significant digits.
struct BFloat16 {};

/// Sends each gradient matrix (n x m, with all dimensions after the first combined) as two thin
/// ones, n x rank and m x rank, found by one step of power iteration (Vogels et al., PowerSGD,
/// NeurIPS 2019). Vectors and types other than float32 and float64 are sent as they are. The
/// approximation error is kept on the rank and in checkpoints, as one set of gradients per rank; a
/// run resumed on a different number of ranks spreads it evenly.
struct PowerSgd {
    /// Columns of the thin matrices, at least 1; usual are 1 to 4.
    std::int64_t rank = 1;
    /// Steps that send gradients as they are before compression begins: training is most
    /// sensitive at its start. About a tenth of all steps is usual.
    std::int64_t start_iteration = 1000;
    /// A matrix is compressed when that divides its size by more than this.
    double min_compression_rate = 2;
    /// Adds a step's approximation error to the next step's gradient. Costs memory of one set of
    /// gradients.
    bool use_error_feedback = true;
    /// Starts from the previous step's thin matrices, not from random ones.
    bool warm_start = true;
    /// Seed of the first, random matrices.
    std::uint64_t seed = 0;
};

} // namespace hook

/// The communication hook of a model's buckets.
using Hook = std::variant<hook::None, hook::Float16, hook::BFloat16, hook::PowerSgd, hook::Custom>;

/// The order in which gradients are added up.
enum class ReductionOrder : unsigned char {
    /// Sums each rank's passes in order, then ranks in order. The same ranks give the same bits in
    /// every run.
    ranks,
    /// A binary tree over the micro-batches of a step: those of rank 0 in the order of its passes,
    /// then those of rank 1, and so on. See DataParallelOptions::reduction_order.
    micro_batches
};

/// Options of `worker.prepare(model, options)`: those of PyTorch's DistributedDataParallel, and
/// more.
struct DataParallelOptions {
    /// Size of a gradient bucket in bytes. A bucket is averaged as soon as backward has filled it;
    /// small buckets start early, large ones send fewer messages.
    std::int64_t bucket_bytes = std::int64_t{25} << 20;
    /// Size of the bucket that backward fills first.
    std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
    /// Allows parameters that take no part in a backward pass: they count as zero gradients, and
    /// keep their previous gradient if no rank used them. Costs one small reduction a step. Off:
    /// such a parameter is an error (RT-M3).
    bool find_unused_parameters = false;
    /// `parameter.grad()` is memory of the bucket after backward: saves a copy and the memory of
    /// one set of gradients. A gradient tensor kept across steps then changes with the next step.
    /// (PyTorch's default is false, because there `zero_grad()` fails on such gradients in C++.)
    bool gradient_as_bucket_view = true;
    /// Before each forward in training mode, buffers (running means) become those of rank 0.
    bool broadcast_buffers = true;
    /// Compression of what is sent, for example `hook::PowerSgd{.rank = 2}`.
    Hook hook = hook::None{};
    /// With `micro_batches`, a step's gradients have the same bits on 1, 2, 4, ... ranks. For that,
    /// with k passes on each rank, of which all but the last run under `no_sync()`:
    /// - rank r runs the step's micro-batches r k to r k + k - 1, and k is a power of two;
    /// - the loss is divided by k, as in any accumulation: gradients are the sum over a rank's
    ///   passes and the mean over ranks;
    /// - gradients are zeroed between steps, and ranks compute with equally many threads
    ///   (`ScalingConfig::threads_per_worker`).
    /// With other numbers of passes, the same ranks still give the same bits. Between the passes of
    /// a step, `parameter.grad()` is undefined. Costs memory of log2(k) more sets of gradients and,
    /// on several ranks, of one bucket for each.
    ReductionOrder reduction_order = ReductionOrder::ranks;
    /// Calling the handle runs forward under autocast in this type, at::kBFloat16 or at::kHalf, and
    /// returns float32; parameters and gradients stay float32. Half needs a GradScaler.
    std::optional<at::ScalarType> autocast = std::nullopt;
    /// After each backward pass that averages gradients, all ranks throw ModelError [RT-M21] when
    /// an averaged gradient is infinite or NaN. No optimizer has used it, so a restart resumes from
    /// intact weights. The check needs no communication: averaged gradients are the same on all
    /// ranks. On one rank, gradients are then stored in buckets as well. Not for use with a
    /// GradScaler, which expects infinite gradients and skips them.
    bool check_gradients = false;
    /// Compares the parameters of all ranks, by their checksums, every so many averaged passes;
    /// each report of a state always does so before it saves. ModelError [RT-M25] names the first
    /// parameter that differs. Costs reading all parameters, and two small messages. 0: at reports
    /// only.
    std::int64_t check_parameters = 0;
    /// Names of parameters and buffers that each rank keeps separately: neither broadcast from rank
    /// 0, nor averaged, clipped or compared; checkpoints hold rank 0's. Names are those of
    /// named_parameters() and named_buffers(); others are ConfigError [RT-C27].
    std::vector<std::string> ignore = {};
    /// The ranks that train this model together, from `worker.communicator().split(colour)`; null
    /// for all. For several models trained at the same time, each by some ranks: statements about
    /// all ranks and rank 0 then apply to the group. Needs a backend with communicators, such as
    /// backend::Mpi (ConfigError RT-C28).
    std::shared_ptr<comm::Communicator> group = nullptr;
    /// Weights a rank's gradients by its rows: right for a loss that is a mean over rows. Set it to
    /// false for a sum. Matters in steps where data::Permuted, data::Streaming, or data::Sharded
    /// with BatchOptions::each_row_once give ranks different numbers of rows. Not with `group`,
    /// under join(), in two loops at a time, or where BatchOptions::micro_batches is set:
    /// micro-batches count equally on any number of ranks.
    bool weight_by_rows = true;
    /// The ranks of a node step large parameters together, if the optimizer is SGD, Adam or AdamW
    /// returned by worker.prepare(): each a slice, in one copy of parameters and the optimizer's
    /// state. The same bits; step() is then *collective*. Unset: where both take at least 128 MiB,
    /// below which waiting for each other costs more than it saves.
    std::optional<bool> step_together = std::nullopt;
};

namespace detail {

/// Throws ConfigError for invalid values: RT-C11, and RT-C12 for ones that exclude each other.
inline void check_options(const DataParallelOptions& options) {
    if (options.check_parameters < 0) {
        throw ConfigError("RT-C11", concat("check_parameters is ", options.check_parameters,
                                           "; expected 0 or a number of passes"));
    }
    if (options.bucket_bytes < 0 || options.first_bucket_bytes < 0) {
        throw ConfigError("RT-C11", concat("bucket_bytes is ", options.bucket_bytes,
                                           " and first_bucket_bytes ", options.first_bucket_bytes,
                                           "; expected at least 0"));
    }
    if (const auto* power = std::get_if<hook::PowerSgd>(&options.hook)) {
        if (power->rank < 1 || power->start_iteration < 0 || !(power->min_compression_rate > 0)) {
            throw ConfigError("RT-C11",
                              concat("hook::PowerSgd with rank ", power->rank, ", start_iteration ",
                                     power->start_iteration, ", min_compression_rate ",
                                     power->min_compression_rate,
                                     "; expected at least 1, at least 0, above 0"));
        }
    }
    if (options.reduction_order == ReductionOrder::micro_batches &&
        !std::holds_alternative<hook::None>(options.hook)) {
        throw ConfigError("RT-C12",
                          "reduction_order micro_batches adds gradients up exactly as they are, "
                          "but a hook is set, which rounds them; remove one of the two");
    }
}

/// The type of two bytes in which a hook sends float32 and float64 gradients, if it does. Other
/// types, and complex ones, are sent as they are.
[[nodiscard]] inline std::optional<at::ScalarType> half_type(const Hook& hook) {
    if (std::holds_alternative<hook::Float16>(hook)) {
        return at::kHalf;
    }
    if (std::holds_alternative<hook::BFloat16>(hook)) {
        return at::kBFloat16;
    }
    return std::nullopt;
}

/// Describes, as text, what must be the same on all ranks.
[[nodiscard]] inline std::string describe(const DataParallelOptions& options) {
    std::string text = concat(
        "options bucket_bytes ", options.bucket_bytes, " first_bucket_bytes ",
        options.first_bucket_bytes, " find_unused_parameters ", options.find_unused_parameters,
        " broadcast_buffers ", options.broadcast_buffers, " hook ", options.hook.index(),
        " reduction_order ", static_cast<int>(options.reduction_order), " autocast ",
        options.autocast ? c10::toString(*options.autocast) : "off", " check_gradients ",
        options.check_gradients, " check_parameters ", options.check_parameters, " weight_by_rows ",
        options.weight_by_rows);
    if (const auto* power = std::get_if<hook::PowerSgd>(&options.hook)) {
        text += concat(" rank ", power->rank, " start_iteration ", power->start_iteration,
                       " min_compression_rate ", power->min_compression_rate,
                       " use_error_feedback ", power->use_error_feedback, " warm_start ",
                       power->warm_start, " seed ", power->seed);
    }
    if (const auto* custom = std::get_if<hook::Custom>(&options.hook)) {
        text += concat(" custom_hook ", custom->get().name());
    }
    if (options.step_together) {
        text += concat(" step_together ", *options.step_together);
    }
    return text + '\n';
}

} // namespace detail
} // namespace rtrain
