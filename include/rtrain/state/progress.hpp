// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far a training function has come: epoch, place in each loop over a data set, random numbers.
/// Saved with every state, so that a resumed run computes what one that never stopped would have.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/data/position.hpp>

#include <boost/json/object.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain {

namespace data {
class Loops;
} // namespace data

class HookRanks;

class Progress {
public:
    /// The place in a series of batches over the data set `name`: where the checkpoint was, if one
    /// has been loaded, or where the last series was that nobody holds any more, so that batches
    /// made anew in each epoch are shuffled anew.
    [[nodiscard]] std::shared_ptr<data::Position> new_position(const std::string& name);

    /// Calls `visit(name, position)` for each data set that batches were read from, where its rows
    /// are counted.
    template <class Visit>
    void each_data_set(Visit&& visit) const {
        for (const auto& [name, position] : positions_) {
            if (position->rows > 0) {
                visit(name, *position);
            }
        }
    }

    /// Why a run could not find back to this place; empty when it can.
    [[nodiscard]] std::string obstacle() const;

    /// *Collective.* Throws DataError [RT-D15] in loops that a run could not find back into.
    void save(checkpoint::Snapshot& snapshot, HookRanks& backend);

    /// Each rank goes on with its own random numbers, as far as the checkpoint knows them: see
    /// load_generator(). `same_run`: else a stop() of the other run is none of this one. Throws
    /// DataError [RT-D17] when a loop that has a place in the checkpoint is under way elsewhere.
    void load(const checkpoint::Snapshot& snapshot, int rank, bool same_run = true);

    /// What a run that goes on does on the way back, in words; empty when it begins an epoch, or
    /// goes on in a loop that has no other around it or before it.
    [[nodiscard]] std::string way_back() const;

    /// The epoch under way; -1 before the first.
    [[nodiscard]] int epoch() const noexcept { return epoch_; }
    /// Throws DataError [RT-D16].
    void begin_epoch(int epoch);
    /// How many epochs there will be; `in_steps`: or steps, which take their place. Throws
    /// CheckpointError [RT-K34] when the checkpoint that was loaded counts the other.
    void set_epochs(int count, bool in_steps = false);
    /// Whether the epochs are steps.
    [[nodiscard]] bool in_steps() const noexcept { return in_steps_; }
    [[nodiscard]] bool in_last_epoch() const noexcept {
        return epoch_ + 1 == epochs_ || wants_stop_ || epoch_ == last_epoch_;
    }

    /// This rank wants no epoch behind the one under way.
    void stop() noexcept { wants_stop_ = true; }
    [[nodiscard]] bool is_to_stop() const noexcept { return wants_stop_ || last_epoch_; }
    /// Whether the epoch under way is the last because some rank wants it. *Collective.*
    [[nodiscard]] bool agree_to_stop(HookRanks& backend);
    /// The last epoch that there will be; empty when none has been stopped at.
    [[nodiscard]] std::optional<int> last_epoch() const noexcept { return last_epoch_; }
    /// Whether a checkpoint holds that there is no epoch any more.
    [[nodiscard]] bool stop_is_saved() const noexcept { return stop_is_saved_; }

private:
    static constexpr const char* section = "rtrain";

    /// Where the generators of all ranks are, "/<rank>" behind it.
    static constexpr const char* random_numbers = "random";

    /// Whether a loop over these batches is under way, which must then be at the place saved.
    [[nodiscard]] bool is_there_already(const std::string& name, const data::Position& saved) const;

    /// Why the way back to this place could not be found through the passes over one series of
    /// batches; empty when it can.
    [[nodiscard]] static std::string obstacle_in(const data::Loops& loops,
                                                 const data::Position& position);

    /// What a checkpoint made now says of a series of batches. A loop that is around another begins
    /// again with the batch that it is at, any other behind it.
    [[nodiscard]] static boost::json::object place_of(const data::Loops& loops,
                                                      const data::Position& position);

    static void add_lanes(boost::json::object& place, const std::vector<data::LanePlace>& lanes);

    [[nodiscard]] static data::Position position_from(const boost::json::object& place);

    /// By data set; "name#2" for a second series at the same time.
    std::map<std::string, std::shared_ptr<data::Position>> positions_;
    std::map<std::string, data::Position> loaded_;
    std::shared_ptr<data::Return> way_back_;
    int resumed_at_ = -1; ///< epoch of the checkpoint
    int epoch_ = -1;
    int epochs_ = -1; ///< unknown
    bool in_steps_ = false;
    bool wants_stop_ = false;
    std::optional<int> last_epoch_;
    bool stop_is_saved_ = false;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/state/progress_definitions.hpp>
#endif
