// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door progress.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/state/generator_state.hpp>
#include <rtrain/state/progress.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

RTRAIN_DOOR std::shared_ptr<data::Position> Progress::new_position(const std::string& name) {
    for (int number = 1;; ++number) {
        const std::string key = number == 1 ? name : name + "#" + std::to_string(number);
        auto& position = positions_[key];
        if (!position) {
            const auto saved = loaded_.find(key);
            position = std::make_shared<data::Position>(saved == loaded_.end() ? data::Position{}
                                                                               : saved->second);
            return position;
        }
        const bool in_use = position.use_count() > 1;
        if (!in_use) {
            return position;
        }
    }
}

RTRAIN_DOOR std::string Progress::obstacle() const {
    const data::LoopStack& loops = data::LoopStack::current();
    for (const auto& [name, position] : positions_) {
        if (const std::string why = obstacle_in(loops, *position); !why.empty()) {
            return detail::concat("the loop over \"", name, "\" ", why);
        }
    }
    std::string unknown;
    loops.each_in_epoch([&](const data::LoopStack::Loop& loop) {
        const bool known = std::ranges::any_of(
            positions_, [&](const auto& item) { return item.second == loop.position; });
        unknown = known ? unknown
                        : "a running loop has no position that could be saved: its loader uses a "
                          "custom distributed sampler";
    });
    return unknown;
}

RTRAIN_DOOR void Progress::save(checkpoint::Snapshot& snapshot, HookRanks& backend) {
    detail::succeed_together(backend, [&] {
        if (const std::string why = obstacle(); !why.empty()) {
            throw DataError(
                "RT-D15",
                detail::concat("no run could resume from this checkpoint: ", why,
                               "; report the state elsewhere, for example after the loop"));
        }
    });
    (void)agree_to_stop(backend);
    data::LoopStack& loops = data::LoopStack::current();
    StateWriter out(snapshot, section);
    boost::json::object places;
    for (const auto& [name, position] : positions_) {
        places[name] = place_of(loops, *position);
    }
    const int next_epoch = loops.within_epoch() ? epoch_ : epoch_ + 1;
    out.value("epoch", next_epoch);
    out.value("data", std::move(places));
    if (in_steps_) {
        out.value("in_steps", true);
    }
    if (last_epoch_) {
        out.value("last_epoch", *last_epoch_);
        stop_is_saved_ = next_epoch > *last_epoch_;
    }
    loops.note_saved();
    const at::Generator& generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor states = backend.all_gather(generator.get_state());
    for (int rank = 0; rank < backend.size(); ++rank) {
        out.tensor(detail::concat(random_numbers, '/', rank), states[rank]);
    }
}

RTRAIN_DOOR void Progress::load(const checkpoint::Snapshot& snapshot, int rank, bool same_run) {
    const StateReader in(snapshot, section);
    epoch_ = in.value("epoch").to_number<int>() - 1;
    resumed_at_ = epoch_ + 1;
    in_steps_ = in.has_value("in_steps");
    way_back_ = std::make_shared<data::ResumePath>();
    for (const auto& item : in.value("data").as_object()) {
        data::Position saved = position_from(item.value().as_object());
        if (is_there_already(item.key(), saved)) {
            continue;
        }
        saved.resume_path = way_back_;
        way_back_->loops_to_begin += saved.was_under_way ? 1 : 0;
        loaded_[item.key()] = saved;
        if (const auto known = positions_.find(item.key()); known != positions_.end()) {
            *known->second = saved;
        }
    }
    if (same_run && in.has_value("last_epoch")) {
        last_epoch_ = in.value("last_epoch").to_number<int>();
        stop_is_saved_ = epoch_ >= *last_epoch_;
    }
    checkpoint::load_generator(at::detail::getDefaultCPUGenerator(), in, random_numbers, rank);
    way_back_->arrive = [drawn = at::detail::getDefaultCPUGenerator().get_state().clone()] {
        auto generator = at::detail::getDefaultCPUGenerator();
        generator.set_state(drawn); // draws on the way back do not count
    };
}

RTRAIN_DOOR std::string Progress::resume_path() const {
    std::string skipped;
    std::string around;
    for (const auto& [name, position] : loaded_) {
        if (position.passes_to_skip > 0) {
            skipped += (skipped.empty() ? "\"" : ", \"") + name + '"';
        }
        if (position.is_around) {
            around += (around.empty() ? "\"" : ", \"") + name + '"';
        }
    }
    std::string text;
    if (!skipped.empty()) {
        text = "completed passes through " + skipped + " are skipped";
    }
    if (!around.empty()) {
        text += (text.empty() ? "" : "; ") + ("the body of the loop over " + around) +
                " restarts with the batch that it was processing";
    }
    return text;
}

RTRAIN_DOOR void Progress::set_epochs(int count, bool in_steps) {
    if (in_steps_ != in_steps && epoch_ >= 0) {
        throw CheckpointError(
            "RT-K34",
            detail::concat(
                "the run has reached ", in_steps_ ? "step " : "epoch ", epoch_ + 1, " of worker.",
                in_steps_ ? "steps" : "epochs", "(), and cannot continue in worker.",
                in_steps ? "steps" : "epochs",
                "(); use only one of them in a run, or start over under a different name"));
    }
    epochs_ = count;
    in_steps_ = in_steps;
}

RTRAIN_DOOR void Progress::begin_epoch(int epoch) {
    if (way_back_ && epoch != resumed_at_) {
        way_back_->loops_to_begin = 0;
    }
    epoch_ = epoch;
    data::LoopStack::current().begin_epoch();
}

RTRAIN_DOOR bool Progress::agree_to_stop(HookRanks& backend) {
    at::Tensor wanted = at::full({1}, wants_stop_ ? 1 : 0, at::kLong);
    if (backend.size() > 1) {
        backend.all_reduce(wanted, ReduceOp::max);
    }
    if (!last_epoch_ && wanted.item<std::int64_t>() != 0) {
        last_epoch_ = epoch_;
    }
    return last_epoch_ && epoch_ >= *last_epoch_;
}

RTRAIN_DOOR bool Progress::is_there_already(const std::string& name,
                                            const data::Position& saved) const {
    const data::LoopStack& loops = data::LoopStack::current();
    const auto known = positions_.find(name);
    if (known == positions_.end() || loops.over(*known->second) == nullptr) {
        return false;
    }
    const data::Position now = position_from(place_of(loops, *known->second));
    if (now.epoch != saved.epoch || now.samples != saved.samples) {
        throw DataError("RT-D17",
                        detail::concat("the checkpoint has a position in the loop over \"", name,
                                       "\", which began before the checkpoint was loaded; begin it "
                                       "after worker.epochs() or worker.restore()"));
    }
    return true;
}

RTRAIN_DOOR std::string Progress::obstacle_in(const data::LoopStack& loops,
                                              const data::Position& position) {
    const auto finished = loops.finished(position);
    const auto* const loop = loops.over(position);
    if (loop != nullptr && !finished.empty()) {
        return detail::concat(
            "had ", finished.size(),
            " complete passes before this one in the same epoch or loop body, and their planned "
            "number is not known; make each pass an epoch of worker.epochs(), or call batches() "
            "for each loop that reads the data set");
    }
    if (!std::ranges::is_partitioned(finished, &data::FinishedPass::trains)) {
        return "was first evaluated and then trained on in the same epoch; call batches() for "
               "each of the two loops";
    }
    if (loop != nullptr && !position.begins_step && loops.is_around_another(*loop)) {
        return "is within a step of several batches, and a loop inside it is running";
    }
    return "";
}

RTRAIN_DOOR boost::json::object Progress::place_of(const data::LoopStack& loops,
                                                   const data::Position& position) {
    boost::json::object place{{"epoch", position.epoch},   {"samples", position.samples},
                              {"rows", position.rows},     {"order", position.order},
                              {"digest", position.digest}, {"content", position.content}};
    const auto* lanes = &position.lanes;
    if (const auto* const loop = loops.over(position)) {
        const bool is_around = loops.is_around_another(*loop);
        if (loop->taken == 0 || is_around) {
            place["samples"] = position.samples_before;
            lanes = &position.lanes_before;
        }
        place["around"] = is_around;
        add_lanes(place, *lanes);
        return place;
    }
    add_lanes(place, *lanes);
    const auto finished = loops.finished(position);
    const auto trained = std::ranges::count_if(finished, &data::FinishedPass::trains);
    place["skip"] = trained;
    if (static_cast<std::size_t>(trained) < finished.size()) { // evaluates again
        place["epoch"] = finished[static_cast<std::size_t>(trained)].epoch;
    }
    return place;
}

RTRAIN_DOOR void Progress::add_lanes(boost::json::object& place,
                                     const std::vector<data::LanePosition>& lanes) {
    if (lanes.empty()) {
        return;
    }
    boost::json::array all;
    for (const auto& [used, given, taken, has_ended, turn] : lanes) {
        all.push_back(boost::json::array{used, given, taken, has_ended, turn});
    }
    place["lanes"] = std::move(all);
}

RTRAIN_DOOR data::Position Progress::position_from(const boost::json::object& place) {
    data::Position saved{place.at("epoch").to_number<std::int64_t>(),
                         place.at("samples").to_number<std::int64_t>()};
    if (place.contains("order")) { // not in older checkpoints
        saved.rows = place.at("rows").to_number<std::int64_t>();
        saved.order = place.at("order").as_string().c_str();
    }
    if (const auto* const digest = place.if_contains("digest")) { // as above
        saved.digest = digest->to_number<std::uint64_t>();
    }
    if (const auto* const content = place.if_contains("content")) { // as above
        saved.content = content->to_number<std::uint64_t>();
    }
    if (const auto* const lanes = place.if_contains("lanes")) {
        for (const auto& lane : lanes->as_array()) {
            const auto& of = lane.as_array();
            saved.lanes.push_back({.used = of.at(0).to_number<std::int64_t>(),
                                   .given = of.at(1).to_number<std::int64_t>(),
                                   .taken = of.at(2).to_number<std::int64_t>(),
                                   .has_ended = of.at(3).as_bool(),
                                   .turn = of.at(4).to_number<std::int64_t>()});
        }
    }
    if (const auto* const skip = place.if_contains("skip")) { // as above
        saved.passes_to_skip = skip->to_number<std::int64_t>();
    }
    if (const auto* const around = place.if_contains("around")) {
        saved.was_under_way = true;
        saved.is_around = around->as_bool();
    }
    return saved;
}

} // namespace rtrain
