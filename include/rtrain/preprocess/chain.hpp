// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chain: a sequence of preprocessors.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/fit.hpp>
#include <rtrain/state/state_io.hpp>

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rtrain::preprocess {

/// Each preprocessor transforms the output of the previous one, and is fitted to it in a separate
/// pass through the data set. Custom types can be part of a chain: see Preprocessor and Fittable.
///
/// @code
/// rtrain::preprocess::Chain chain(rtrain::preprocess::SimpleImputer({"age"}),
///                                 rtrain::preprocess::StandardScaler({"age"}));
/// worker.fit(chain, "train");
/// worker.restore(rtrain::State{}.add("model", model).add("preprocessor", chain));
/// @endcode
template <Preprocessor... P>
class Chain {
public:
    explicit Chain(P... preprocessors) : stages_(std::move(preprocessors)...) {}

    /// Throws the errors of their fit(). *Collective* if `ranks` is given.
    void fit(const data::Dataset& rows, HookRanks* ranks = nullptr) { fit_from<0>(rows, ranks); }

    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        data::Batch changed = batch;
        std::apply([&](const P&... stage) { ((changed = stage.transform(changed)), ...); },
                   stages_);
        return changed;
    }

    /// The preprocessor at index `number`, from 0.
    template <std::size_t number>
    [[nodiscard]] const auto& get() const noexcept {
        return std::get<number>(stages_);
    }

    /// Skips preprocessors without state.
    void save(StateWriter& out) const {
        std::size_t number = 0;
        std::apply([&](const P&... stage) { (save_stage(stage, out, number++), ...); }, stages_);
    }
    void load(const StateReader& in) {
        std::size_t number = 0;
        std::apply([&](P&... stage) { (load_stage(stage, in, number++), ...); }, stages_);
    }

private:
    template <std::size_t number>
    void fit_from(const data::Dataset& rows, HookRanks* ranks) {
        if constexpr (number < sizeof...(P)) {
            auto& stage = std::get<number>(stages_);
            if constexpr (Fittable<std::remove_reference_t<decltype(stage)>>) {
                stage.fit(rows, ranks);
            }
            fit_from<number + 1>(
                rows.map_batches([&stage](data::Batch batch) { return stage.transform(batch); }),
                ranks);
        }
    }

    template <class Stage>
    static void save_stage(const Stage& stage, const StateWriter& out, std::size_t number) {
        if constexpr (requires(StateWriter & part) { stage.save(part); }) {
            StateWriter part = out.part(std::to_string(number));
            stage.save(part);
        }
    }
    template <class Stage>
    static void load_stage(Stage& stage, const StateReader& in, std::size_t number) {
        if constexpr (requires(const StateReader& part) { stage.load(part); }) {
            stage.load(in.part(std::to_string(number)));
        }
    }

    std::tuple<P...> stages_;
};

} // namespace rtrain::preprocess
