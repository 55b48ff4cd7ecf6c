// SPDX-License-Identifier: Apache-2.0
/// @file
/// A group of the world's ranks that send each other messages. Groups need no separate MPI
/// communicators, so creating one cannot hang on a rank that has failed.
#pragma once

#include <rtrain/comm/world/requests.hpp>
#include <rtrain/comm/world/world.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::comm {

class Group {
public:
    /// `members`: world ranks in the order of their ranks in the group, including this one. `id`:
    /// the same on all members, and unique among the groups that two of them share.
    Group(std::shared_ptr<World> world, std::vector<int> members, int id)
        : world_(std::move(world)), members_(std::move(members)), id_(id) {
        const int mine = world_->rank();
        rank_ =
            static_cast<int>(std::find(members_.begin(), members_.end(), mine) - members_.begin());
        world_->set_last_group(std::max(world_->last_group(), id));
        if (id >= world_->largest_tag() / tags) {
            throw CommError("RT-X13",
                            detail::concat("group number ", id,
                                           " exceeds the tags of this MPI library; split() "
                                           "communicators once, not in each step"));
        }
    }

    /// True if another World can reuse this one and have enough groups; the same on all ranks.
    [[nodiscard]] static bool have_room_behind(const World& world) {
        constexpr int enough = 1000;
        return world.is_kept() && world.groups_left(tags) > enough;
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
    [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
    /// World rank of a member, as named in errors.
    [[nodiscard]] int world_rank(int rank) const {
        return members_[static_cast<std::size_t>(rank)];
    }
    [[nodiscard]] std::vector<int> world_ranks(std::vector<int> ranks) const {
        std::ranges::transform(ranks, ranks.begin(), [this](int rank) { return world_rank(rank); });
        return ranks;
    }
    [[nodiscard]] World& world() const noexcept { return *world_; }
    [[nodiscard]] const std::shared_ptr<World>& shared_world() const noexcept { return world_; }

    /// Returns a tag for the next collective; all members call this in the same order.
    [[nodiscard]] int next_tag() {
        sequence_ = (sequence_ + 1) % sequences;
        return id_ * tags + sequence_;
    }
    /// Returns the tag of a user's message. Throws CommError [RT-X13] unless 0 <= tag < 4096.
    [[nodiscard]] int user_tag(int tag) const {
        if (tag < 0 || tag >= user_tags) {
            throw CommError("RT-X13", detail::concat("a message's tag is ", tag, "; expected 0 to ",
                                                     user_tags - 1));
        }
        return id_ * tags + sequences + tag;
    }

    /// Messages to and from members.
    [[nodiscard]] Requests requests() const { return Requests(world_->messages(), &members_); }

    /// See World::wait().
    template <class Progress, class Details>
    void wait(Progress& progress, const char* what, Details&& details) const {
        world_->wait(progress, what, members_, details);
    }
    template <class Progress>
    void wait(Progress& progress, const char* what) const {
        wait(progress, what, [](bool /*numbered*/) { return std::string(); });
    }

private:
    static constexpr int sequences = 4096;
    static constexpr int user_tags = 4096;
    static constexpr int tags = sequences + user_tags; ///< of one group

    std::shared_ptr<World> world_;
    std::vector<int> members_;
    int id_;
    int rank_ = 0;
    int sequence_ = 0;
};

} // namespace rtrain::comm
