// SPDX-License-Identifier: Apache-2.0
/// @file
/// The numbered calls of a rank on one communicator. Ranks of a node see each other's
/// (call_record.hpp), so that two that wait for each other in different calls report it
/// immediately. With World::Options::check_calls all ranks compare before each call.
#pragma once

#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/memory/collective_log.hpp>
#include <rtrain/comm/memory/stages.hpp>
#include <rtrain/comm/world/group.hpp>
#include <rtrain/process/status/collective_label.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <ATen/Functions.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::comm {

class Calls final : public WaitObserver {
public:
    /// `all` outlives this object.
    explicit Calls(Group& all) : all_(all) { all_.world().add(*this); }
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;
    ~Calls() { all_.world().remove(*this); }

    /// From now on the ranks of `node`, which share memory, see each other's calls. Both outlive
    /// this object.
    void share(const Group& node, CollectiveLog<Call>& record) {
        node_ = &node;
        record_ = &record;
    }

    /// Returns a repeatable call with its number, the same on all ranks, and a name, from Purpose.
    [[nodiscard]] Call with_handle(Call call) {
        call.which = ++handles_ != 0 ? handles_ : ++handles_;
        names_.erase(call.which);
        if (const std::string& purpose = CollectiveLabel::current(); !purpose.empty()) {
            names_[call.which] = purpose;
        }
        return call;
    }

    /// Begins a call on this rank; returns it with its position in the order. Compares with all
    /// ranks, if enabled, and throws CommError [RT-X10] if another rank begins a different call.
    [[nodiscard]] Call begin(Call call) {
        call.order = ++order_;
        call.set_user_call(UserCall::current());
        if (record_ != nullptr) {
            record_->add(call);
        }
        compare(call);
        return call;
    }

    /// Like begin(), for an operation that all ranks perform but do not wait in.
    void compare(const Call& call) {
        if (!all_.world().options().check_calls) {
            return;
        }
        at::Tensor calls =
            at::empty({all_.size(), static_cast<std::int64_t>(sizeof call)}, at::kByte);
        std::memcpy(calls[all_.rank()].data_ptr(), &call, sizeof call);
        MessageAllGather messages(all_, calls);
        wait(all_, messages, call);
        for (int peer = 0; peer < all_.size(); ++peer) {
            Call theirs;
            std::memcpy(&theirs, calls[peer].const_data_ptr(), sizeof theirs);
            if (!(theirs == call)) {
                throw_different(all_.world_rank(all_.rank()), call, all_.world_rank(peer), theirs);
            }
        }
    }

    /// For example "backward pass 7 (all_reduce(sum) of a bucket of 49 Float (gradients of
    /// "0.weight", reduction 2))".
    [[nodiscard]] std::string describe(const Call& call, bool numbered = true) const {
        std::string text = comm::describe(call);
        if (call.which != 0 && (call.collective == Collective::all_reduce ||
                                call.collective == Collective::all_reduce_bucket)) {
            const auto name = names_.find(call.which);
            text += detail::concat(" (", name != names_.end() ? name->second + ", " : "",
                                   "reduction ", call.which, ')');
        }
        return UserCall{static_cast<UserCall::Name>(call.user_call), call.user_step}.around(
            text, numbered);
    }

    /// Waits for `progress` of a call.
    template <class Progress>
    void wait(const Group& group, Progress& progress, const Call& call) const {
        group.wait(progress, name_of(call.collective),
                   [&](bool numbered) { return describe(call, numbered); });
    }

    /// Waits for the ranks of this node; `group` may be larger.
    void wait(const Group& group, Stages<Call>& stages, const Call& call) const {
        struct Progress {
            Stages<Call>& stages;
            const Group* node;
            bool poll() { return stages.poll(); }
            [[nodiscard]] std::vector<int> awaited() const {
                return node != nullptr ? node->world_ranks(stages.absent()) : std::vector<int>();
            }
        } progress{stages, node_};
        group.wait(progress, name_of(call.collective),
                   [&](bool numbered) { return describe(call, numbered); });
    }

    /// Throws CommError [RT-X10] if a rank is at this stage with a different call.
    void require_agreement(const Group& group, const Stages<Call>& stages) const {
        if (const auto peer = stages.disagreeing()) {
            throw_different(group.world_rank(stages.rank()), stages.call_of(stages.rank()),
                            group.world_rank(*peer), stages.call_of(*peer));
        }
    }

    /// Throws CommError [RT-X10] if a rank of this node has made a different call.
    void poll() override {
        if (record_ == nullptr) {
            return;
        }
        if (const auto found = record_->find()) {
            throw_different(all_.world().rank(), found->mine, node_->world_rank(found->peer),
                            found->theirs);
        }
    }

    [[noreturn]] void throw_different(int rank, const Call& mine, int peer,
                                      const Call& theirs) const {
        all_.world().set_disturbed();
        const std::string here = describe(mine);
        const std::string there = describe(theirs);
        const char* const how = here != there                ? ""
                                : mine.shape != theirs.shape ? " of a different shape"
                                                             : " in a different order";
        throw_for_good(CommError(
            "RT-X10", detail::concat("rank ", rank, " called ", here, ", while rank ", peer,
                                     " called ", there, how,
                                     "; all ranks must make the same calls, also backward "
                                     "passes of several models, in the same order, with tensors "
                                     "of equal shape and type")));
    }

private:
    Group& all_;
    const Group* node_ = nullptr;
    CollectiveLog<Call>* record_ = nullptr;
    std::uint32_t order_ = 0;
    std::uint16_t handles_ = 0;
    std::map<std::uint16_t, std::string> names_; ///< of repeatable calls
};

} // namespace rtrain::comm
