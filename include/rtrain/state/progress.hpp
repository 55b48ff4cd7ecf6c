// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of a training function: epoch, position in each loop over a data set, random numbers.
/// Saved with every state, so that a resumed run computes the same as one that never stopped.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/data/order/position.hpp>

#include <boost/json/object.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain {

namespace data {
class LoopStack;
} // namespace data

class HookRanks;

class Progress {
public:
    /// Returns the position in a series of batches over the data set `name`: the one of the loaded
    /// checkpoint, or of the last series no longer in use. Batches re-created in each epoch are
    /// thus reshuffled.
    [[nodiscard]] std::shared_ptr<data::Position> new_position(const std::string& name);

    /// Calls `visit(name, position)` for each data set that batches were read from and whose rows
    /// are counted.
    template <class Visit>
    void each_data_set(Visit&& visit) const {
        for (const auto& [name, position] : positions_) {
            if (position->rows > 0) {
                visit(name, *position);
            }
        }
    }

    /// Reason why a run could not resume at this position; empty if it can.
    [[nodiscard]] std::string obstacle() const;

    /// *Collective.* Throws DataError [RT-D15] inside loops in which a run could not resume.
    void save(checkpoint::Snapshot& snapshot, HookRanks& backend);

    /// Restores each rank's own random numbers if the checkpoint has them: see load_generator().
    /// `same_run`: if false, a stop() of the other run is ignored. Throws DataError [RT-D17] if a
    /// loop is already running, and not at its position in the checkpoint.
    void load(const checkpoint::Snapshot& snapshot, int rank, bool same_run = true);

    /// Describes how a resumed run returns to this position. Empty at the start of an epoch, and in
    /// a loop with no other loop around it or before it.
    [[nodiscard]] std::string resume_path() const;

    /// The current epoch; -1 before the first.
    [[nodiscard]] int epoch() const noexcept { return epoch_; }
    /// Throws DataError [RT-D16].
    void begin_epoch(int epoch);
    /// Sets the number of epochs, or with `in_steps`, of the steps that take their place. Throws
    /// CheckpointError [RT-K34] if the loaded checkpoint counts the other.
    void set_epochs(int count, bool in_steps = false);
    /// True if the epochs are steps.
    [[nodiscard]] bool in_steps() const noexcept { return in_steps_; }
    [[nodiscard]] bool in_last_epoch() const noexcept {
        return epoch_ + 1 == epochs_ || wants_stop_ || epoch_ == last_epoch_;
    }

    /// Requests on this rank that the current epoch be the last.
    void stop() noexcept { wants_stop_ = true; }
    [[nodiscard]] bool is_to_stop() const noexcept { return wants_stop_ || last_epoch_; }
    /// True if the current epoch is the last because some rank requested it. *Collective.*
    [[nodiscard]] bool agree_to_stop(HookRanks& backend);
    /// The epoch at which training was stopped; empty if it was not.
    [[nodiscard]] std::optional<int> last_epoch() const noexcept { return last_epoch_; }
    /// True if a checkpoint records that no epoch follows.
    [[nodiscard]] bool stop_is_saved() const noexcept { return stop_is_saved_; }

private:
    static constexpr const char* section = "rtrain";

    /// Name of the generators of all ranks; "/<rank>" is appended.
    static constexpr const char* random_numbers = "random";

    /// True if a loop over these batches is running; it must then be at the saved position.
    [[nodiscard]] bool is_there_already(const std::string& name, const data::Position& saved) const;

    /// Reason why a run could not resume at this position through the passes of one series of
    /// batches; empty if it can.
    [[nodiscard]] static std::string obstacle_in(const data::LoopStack& loops,
                                                 const data::Position& position);

    /// Returns a checkpoint's entry for a series of batches. A loop around another one resumes at
    /// its current batch, any other after it.
    [[nodiscard]] static boost::json::object place_of(const data::LoopStack& loops,
                                                      const data::Position& position);

    static void add_lanes(boost::json::object& place, const std::vector<data::LanePosition>& lanes);

    [[nodiscard]] static data::Position position_from(const boost::json::object& place);

    /// Keyed by data set; "name#2" for a second, concurrent series.
    std::map<std::string, std::shared_ptr<data::Position>> positions_;
    std::map<std::string, data::Position> loaded_;
    std::shared_ptr<data::ResumePath> way_back_;
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
