// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients of which each rank holds its part: a chunk of them (shard_plan.hpp) goes into a slot
/// and is freed, and each rank gets the sum of its block from the slots of all
/// (comm/node/slots.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/model/ddp/gradient_store.hpp>
#include <rtrain/model/reduction/finite.hpp>
#include <rtrain/model/reduction/gradient_writer.hpp>
#include <rtrain/model/sharded/gradients/chunk_writer.hpp>
#include <rtrain/model/sharded/plan/shard_buffers.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/collective_label.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

class GradientShards final : public GradientStore {
public:
    /// `parameters` outlive this object. `model`: its name in messages.
    GradientShards(std::shared_ptr<SharedWeights> weights, std::string model,
                   const std::vector<NamedParameter>& parameters, const ShardedOptions& options)
        : weights_(std::move(weights)), model_(std::move(model)), parameters_(parameters),
          slot_bytes_(options.slot_bytes), half_(half_type(options.data_parallel.hook)),
          keeps_(options.level != Shard::optimizer), divisor_(weights_->backend().size()),
          own_(parameters.size()),
          writer_(parameters, weights_->owners().count(), weights_->ranks().device()) {}

    void allocate(std::vector<bool> wanted) override {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            wanted[i] = wanted[i] || own_[i].has_place;
            own_[i].has_place = wanted[i];
        }
        const int owners = weights_->owners().count();
        chunks_ = plan_chunks(parameters_, weights_->part_types(), wanted, owners, slot_bytes_);
        const CollectiveLabel purpose("gradients of " + model_);
        slots_ = weights_->ranks().allocate_slots(slot_bytes_of(chunks_, owners), half_);
        lay_out_sums();
        missing_.assign(chunks_.size(), 0);
    }
    [[nodiscard]] bool has_place(std::size_t parameter) const override {
        return own_[parameter].has_place;
    }
    [[nodiscard]] std::size_t size() const override { return chunks_.size(); }
    [[nodiscard]] bool handles_no_sync() const override { return keeps_; }
    [[nodiscard]] bool has_copies_of_parameters() const override { return weights_->are_copies(); }
    void divide_by(double divisor) override { divisor_ = divisor; }
    [[nodiscard]] double divisor() const override { return divisor_; }

    void begin(const std::vector<bool>& expected) override {
        if (steps() && next_ > 0) {
            throw ModelError("RT-M26", "an exception has ended a backward pass that had stepped "
                                       "some parameters already; let it leave the training "
                                       "function, and the run resumes from its newest checkpoint");
        }
        weights_->require_step();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            own_[i].is_expected = expected[i];
            own_[i].summed = 0;
            own_[i].gradient.reset(); // left by a pass that an exception has ended
            if (expected[i] && (has_had_pass_ || steps())) {
                weights_->require_optimizer(i);
            }
        }
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            const auto& members = chunks_[c].members;
            missing_[c] = static_cast<std::size_t>(
                std::count_if(members.begin(), members.end(), [&](const Chunk::Member& member) {
                    return own_[member.parameter].is_expected;
                }));
            trains_[c] = missing_[c] > 0;
        }
        next_ = 0;
    }

    /// Stores the gradient until its chunks are sent.
    void copy_in(std::size_t parameter, bool /*syncs*/) override {
        at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
        own_[parameter].gradient =
            in_memory_order(std::exchange(gradient, {}), parameters_[parameter].tensor);
        arrive(parameter);
    }
    /// autograd accumulates in the type of the existing gradient: here that of the sums, where the
    /// parameter's is narrower.
    void accumulate(std::size_t parameter) override {
        at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
        const auto type = weights_->part(parameter).scalar_type();
        if (!gradient.is_sparse() && gradient.scalar_type() != type) {
            gradient = gradient.detach().to(type);
        }
    }
    void contribute_zeros(std::size_t parameter) override { arrive(parameter); }
    void exclude(std::size_t parameter) override {
        if (at::Tensor& gradient = weights_->part(parameter).mutable_grad(); gradient.defined()) {
            gradient = gradient.clone();
        }
    }

    [[nodiscard]] bool has_started_or_full() const override {
        return next_ > 0 || (next_ < chunks_.size() && missing_[next_] == 0);
    }
    void launch_ready() override {
        slots_->poll();
        for (; next_ < chunks_.size() && missing_[next_] == 0; ++next_) {
            if (trains_[next_]) {
                send(next_);
            }
        }
    }
    [[nodiscard]] std::size_t started() const override { return next_; }
    void wait() override {
        weights_->before_sending();
        slots_->wait();
        has_had_pass_ = true;
    }

    /// Parts hold the sums of the passes so far, and the next one adds to them.
    void end_no_sync_pass() override {
        launch_ready();
        slots_->wait();
        for (std::size_t i = 0; i < own_.size(); ++i) {
            if (own_[i].is_expected && own_[i].has_place && !weights_->part(i).grad().defined()) {
                own_[i].was_none = true;
                give(i);
            }
        }
    }

    [[nodiscard]] bool are_finite() override {
        bool finite = true;
        for (std::size_t i = 0; i < own_.size(); ++i) {
            finite =
                finite && (!own_[i].is_expected || !own_[i].has_place || all_finite(sum_of(i)));
        }
        return !on_any_rank(!finite);
    }
    [[nodiscard]] bool is_finite(std::size_t parameter) override {
        return !on_any_rank(!all_finite(sum_of(parameter)));
    }
    [[nodiscard]] bool holds_nan(std::size_t parameter) override {
        return on_any_rank(sum_of(parameter).isnan().any().item<bool>());
    }

    void finalize(std::size_t parameter, bool used, bool sparse) override {
        at::Tensor& own = weights_->part(parameter).mutable_grad();
        const bool was_none = std::exchange(own_[parameter].was_none, false);
        if (sparse) {
            hand_out_sparse(parameter, used);
        } else if (steps()) {
            return;
        } else if (used) {
            give(parameter);
            parameters_[parameter].tensor.mutable_grad().reset(); // already sent
        } else if (was_none) {
            own.reset(); // zeros of passes in which no rank has used it
        }
    }

    void end_pass() override {
        if (steps()) {
            weights_->spread_steps();
            next_ = 0;
        }
    }

    [[nodiscard]] std::vector<at::Tensor> gradients() const override {
        std::vector<at::Tensor> memory;
        for (std::size_t i = 0; i < own_.size(); ++i) {
            if (const at::Tensor& gradient = weights_->part(i).grad(); gradient.defined()) {
                memory.push_back(gradient);
            }
        }
        return memory;
    }

private:
    struct Own {
        bool has_place = false;
        bool is_expected = false; ///< in the current pass
        bool was_none = false;    ///< the part had no gradient before keep()
        at::Tensor sum;           ///< of the part's elements, in the memory of its type
        std::size_t first_chunk = 0;
        std::size_t chunks = 0; ///< that hold it, consecutive
        std::size_t summed = 0; ///< of these, in a pass that steps
        at::Tensor gradient;    ///< this rank's in this pass, until it is sent; undefined: zeros
    };

    void lay_out_sums() {
        const std::vector<ShardBuffer> rooms = rooms_for_sums();
        trains_.assign(chunks_.size(), false);
        blocks_.clear();
        for (Own& own : own_) {
            own.chunks = 0;
        }
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            const Chunk& chunk = chunks_[c];
            const auto& [memory, begin] = rooms[c];
            blocks_.push_back(memory.narrow(0, begin, owns() ? chunk.block : 0));
            for (const Chunk::Member& member : chunk.members) {
                if (own_[member.parameter].chunks++ == 0) {
                    own_[member.parameter].first_chunk = c;
                    const std::int64_t count = weights_->part(member.parameter).numel();
                    move_sum(member.parameter,
                             memory.narrow(0, count > 0 ? begin + member.offset : 0, count));
                }
            }
        }
    }
    [[nodiscard]] std::vector<ShardBuffer> rooms_for_sums() const {
        if (!owns()) {
            std::vector<ShardBuffer> none;
            for (const Chunk& chunk : chunks_) {
                none.push_back({at::empty({0}, chunk.type), 0});
            }
            return none;
        }
        // After slot() the sums of a node are complete; nodes meanwhile exchange those of one
        // round.
        const at::TensorOptions where = weights_->parts_on();
        return steps() ? rotating_buffers(chunks_, weights_->owners().nodes == 1 ? 1 : 2, where)
                       : own_rooms(chunks_, where);
    }
    [[nodiscard]] bool owns() const { return weights_->owners().owns(); }
    /// True if sums are stepped and consumed within the pass.
    [[nodiscard]] bool steps() const { return weights_->steps_in_backward(); }

    /// Moves the part's gradient along, if it has one.
    void move_sum(std::size_t parameter, const at::Tensor& sum) {
        own_[parameter].sum = sum;
        at::Tensor& gradient = weights_->part(parameter).mutable_grad();
        if (gradient.defined()) {
            adopt(parameter);
        }
    }

    void arrive(std::size_t parameter) {
        const Own& own = own_[parameter];
        if (steps()) { // later uses in this pass then fail autograd's version check
            parameters_[parameter].tensor.unsafeGetTensorImpl()->bump_version();
        }
        for (std::size_t c = own.first_chunk; c < own.first_chunk + own.chunks; ++c) {
            --missing_[c];
        }
    }

    void send(std::size_t number) {
        weights_->before_sending();
        const Chunk& chunk = chunks_[number];
        writer_.write(chunk, slots_->slot(), divisor_,
                      [this](std::size_t parameter) { return own_[parameter].gradient; });
        bool adds = false;
        for (const Chunk::Member& member : chunk.members) {
            Own& own = own_[member.parameter];
            if (number + 1 == own.first_chunk + own.chunks) {
                own.gradient.reset();
            }
            adds = adds || weights_->part(member.parameter).grad().defined();
        }
        if (steps()) {
            slots_->publish(chunk.type, chunk.block, blocks_[number],
                            [this, number] { step(number); });
            if (!owns() || chunk.block == 0) { // nothing to wait for
                step(number);
            }
            return;
        }
        if (!adds) {
            slots_->publish(chunk.type, chunk.block, blocks_[number], [] {});
            return;
        }
        const at::Tensor fresh = at::empty_like(blocks_[number]);
        slots_->publish(chunk.type, chunk.block, fresh,
                        [this, number, fresh] { add(chunks_[number], fresh, blocks_[number]); });
    }

    /// Called when a chunk's sums are complete: steps the parameters that have all of theirs.
    /// Between nodes, a later chunk may be complete before an earlier one.
    void step(std::size_t number) {
        const torch::NoGradGuard no_grad;
        const StepClock::In stepping(ProcessContext::current().clock, StepPart::optimizer);
        std::vector<std::size_t> complete;
        for (const Chunk::Member& member : chunks_[number].members) {
            Own& own = own_[member.parameter];
            if (own.is_expected && ++own.summed == own.chunks) {
                complete.push_back(member.parameter);
            }
        }
        weights_->step_now(complete, [this](std::size_t parameter) { give(parameter); });
    }

    /// Adds a chunk's new sums to those of the parts, where they have some.
    void add(const Chunk& chunk, const at::Tensor& fresh, const at::Tensor& block) {
        const torch::NoGradGuard no_grad;
        for (const Chunk::Member& member : chunk.members) {
            const bool adds = weights_->part(member.parameter).grad().defined();
            if (adds) {
                adopt(member.parameter);
            }
            const at::Tensor from = fresh.narrow(0, member.offset, member.count);
            at::Tensor to = block.narrow(0, member.offset, member.count);
            adds ? to.add_(from) : to.copy_(from);
        }
    }

    [[nodiscard]] const at::Tensor& sum_of(std::size_t parameter) const {
        return own_[parameter].sum;
    }
    /// Makes the memory of its sum the part's gradient.
    void give(std::size_t parameter) {
        weights_->part(parameter).mutable_grad() =
            alias(sum_of(parameter), 0, weights_->part(parameter));
    }
    /// Moves a gradient that user code has placed elsewhere into the memory of its sum.
    void adopt(std::size_t parameter) {
        const at::Tensor gradient = weights_->part(parameter).grad();
        if (gradient.const_data_ptr() != sum_of(parameter).const_data_ptr()) {
            sum_of(parameter).copy_(gradient);
            give(parameter);
        }
    }

    void hand_out_sparse(std::size_t parameter, bool used) {
        at::Tensor& whole = parameters_[parameter].tensor.mutable_grad();
        if (used && whole.defined()) {
            at::Tensor& part = weights_->part(parameter);
            const auto* const of = weights_->find_part(part);
            const at::Tensor mine = in_memory_order(whole.to_dense(), parameters_[parameter].tensor)
                                        .narrow(0, of->begin, part.numel());
            at::Tensor& own = part.mutable_grad();
            own = own.defined() ? own + mine.to(own.device())
                                : mine.to(part.options(), false, /*copy=*/true);
        }
        whole.reset();
        if (steps()) {
            weights_->step_now({parameter}, [](std::size_t /*has it*/) {});
        }
    }

    [[nodiscard]] bool on_any_rank(bool here) const {
        at::Tensor flag = at::full({1}, here ? 1 : 0, at::kInt);
        weights_->backend().all_reduce(flag, ReduceOp::max);
        return flag.item<int>() != 0;
    }

    std::shared_ptr<SharedWeights> weights_;
    std::string model_;
    const std::vector<NamedParameter>& parameters_;
    std::int64_t slot_bytes_;
    std::optional<at::ScalarType> half_; ///< in which nodes exchange sums
    bool keeps_;                         ///< sums of passes under no_sync()
    double divisor_;
    std::vector<Own> own_; ///< by parameter
    std::vector<Chunk> chunks_;
    std::unique_ptr<comm::Slots> slots_;
    std::vector<at::Tensor> blocks_;   ///< by chunk: this rank's block of the sums
    std::vector<std::size_t> missing_; ///< by chunk: gradients that this pass has not computed yet
    std::vector<bool> trains_;         ///< by chunk: a parameter in it is expected
    std::size_t next_ = 0; ///< the first chunk not sent; 0 after a pass that has stepped
    bool has_had_pass_ = false;
    ChunkWriter writer_;
};

} // namespace rtrain::detail
