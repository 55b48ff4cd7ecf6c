// SPDX-License-Identifier: Apache-2.0
/// @file
/// RankCalls: the driver's side of calls that all ranks of a program make together, such as
/// report(). Each rank waits for the answer to its call before it makes another one.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/base/overloaded.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/supervise/program.hpp>
#include <rtrain/program/report/run_book.hpp>
#include <rtrain/run/file_owners.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::program {

/// The calls of one start of the ranks. A call fails on all ranks or on none, except for a message
/// that no rank sends.
class RankCalls {
public:
    /// `book` outlives this object.
    RankCalls(RunBook& book, int ranks) : book_(book), ranks_(static_cast<std::size_t>(ranks)) {}

    /// Handles Report, Stored, Meet, Log and Ending. Throws std::bad_alloc.
    [[nodiscard]] launch::CallAnswers hear(int rank, const launch::RankEvent& received) {
        answers_ = {};
        const auto take = [&](const auto& call) { this->take(rank, call); };
        try {
            std::visit(detail::Overloaded{
                           [&](const launch::event::Report& call) { take(call); },
                           [&](const launch::event::Meet& call) { take(call); },
                           [&](const launch::event::Stored& stored) { keep(rank, stored); },
                           [&](const launch::event::Ending&) { end(rank); },
                           [&](const launch::event::Log& step) { book_.log(step.metrics); },
                           [](const auto&) {},
                       },
                       received);
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            fail(detail::failure_of(error));
        }
        return std::exchange(answers_, {});
    }

    /// Why a checkpoint was not stored in the background, until a report raises it.
    [[nodiscard]] const std::optional<Failure>& failure() const noexcept { return failure_; }

private:
    using Report = launch::event::Report;
    using Meet = launch::event::Meet;

    struct Rank {
        std::optional<std::variant<Report, Meet>> call{}; ///< which waits for its answer
        std::int64_t storing = -1;                        ///< the call whose files it stores
        std::optional<launch::event::Stored> stored{};
        std::int64_t answered = 0; ///< its calls before
        bool has_ended = false;
    };

    /// A checkpoint that the ranks store.
    struct Saving {
        std::string name;
        bool in_background = false;
        Config metadata{};
        Config line{}; ///< of its report, once that is recorded
        std::int64_t iteration = 0;
    };

    [[nodiscard]] Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

    template <class Call>
    void take(int rank, const Call& call) {
        if (at(rank).call || call.call != at(rank).answered) {
            refuse(rank, call.call);
            return;
        }
        at(rank).call = call;
        require_living_ranks();
        answer_if_all_have_called();
    }

    /// Before another checkpoint, the one that is stored in the background is committed.
    void answer_if_all_have_called() {
        if (!std::ranges::all_of(ranks_, [](const Rank& one) { return one.call.has_value(); })) {
            return;
        }
        require_same_function();
        if (std::holds_alternative<Meet>(*at(0).call)) {
            meet();
        } else if (!saving_ || !have_files()) {
            report();
        }
    }

    /// For a message out of turn.
    void refuse(int rank, std::int64_t call) {
        answers_.events.emplace_back(
            rank, launch::event::CallFailed{
                      call, "RT-E46",
                      detail::concat("rank ", rank, " sent call ", call,
                                     " out of turn; only one thread of one process of each rank "
                                     "may use the module rtrain")});
    }

    void end(int rank) {
        at(rank).has_ended = true;
        require_living_ranks();
    }

    /// No call may wait for a rank whose program has ended.
    void require_living_ranks() {
        const std::vector<int> ended = ranks_if([](const Rank& one) { return one.has_ended; });
        const std::vector<int> waiting = ranks_if([](const Rank& one) { return bool(one.call); });
        if (ended.empty() || waiting.empty()) {
            return;
        }
        throw LaunchError("RT-E47",
                          detail::concat(launch::ranks_named(waiting), " called ",
                                         function_of(waiting.front()), "(), but ",
                                         launch::ranks_named(ended), " ended after ",
                                         at(ended.front()).answered,
                                         at(ended.front()).answered == 1 ? " call" : " calls",
                                         "; all ranks must make the same calls of report() and "
                                         "collective functions"));
    }

    [[nodiscard]] std::string function_of(int rank) {
        const auto* const meet = std::get_if<Meet>(&*at(rank).call);
        return meet != nullptr ? meet->function : "report";
    }

    void require_same_function() {
        for (int rank = 1; rank < size(); ++rank) {
            if (function_of(rank) != function_of(0)) {
                throw LaunchError("RT-E47",
                                  detail::concat("rank 0 called ", function_of(0), "(), but rank ",
                                                 rank, " called ", function_of(rank),
                                                 "(); all ranks must make the same calls of "
                                                 "report() and collective functions"));
            }
        }
    }

    void meet() {
        std::string text;
        for (int rank = 0; rank < size() && text.empty(); ++rank) {
            text = std::get<Meet>(*at(rank).call).text;
        }
        answer([&](std::int64_t call) { return launch::event::Met{call, text}; });
    }

    [[nodiscard]] bool have_files() const {
        return std::ranges::any_of(
            ranks_, [](const Rank& one) { return std::get<Report>(*one.call).has_files; });
    }

    void report() {
        if (failure_) {
            detail::throw_error(*std::exchange(failure_, std::nullopt));
        }
        if (!book_.stop_reason().empty() && !has_said_stop_) {
            say_reported(book_.iteration()); // the run had stopped before this start
            return;
        }
        for (int rank = 0; rank < size(); ++rank) {
            require_success(rank, report_of(rank).code, report_of(rank).error);
        }
        const bool in_background = are_in_background();
        book_.begin_report(report_of(0).metrics);
        if (!have_files()) {
            say_reported(book_.record(report_of(0).metrics));
            return;
        }
        saving_ = {.name = book_.stage(report_of(0).checkpoint)};
        if (in_background) {
            record();
        }
        store();
        saving_->in_background = in_background; // errors are no longer those of this report
        if (in_background) {
            say_reported(saving_->iteration);
        }
    }

    /// Throws CheckpointError [RT-K5].
    [[nodiscard]] bool are_in_background() {
        std::optional<bool> agreed;
        for (int rank = 0; rank < size(); ++rank) {
            const Report& one = report_of(rank);
            if (one.has_files && one.in_background != agreed.value_or(one.in_background)) {
                throw CheckpointError(
                    "RT-K5", detail::concat("rank ", rank,
                                            " reported a directory with a different "
                                            "checkpoint_upload_mode than lower ranks; report it "
                                            "with the same options on all ranks"));
            }
            agreed = one.has_files ? one.in_background : agreed;
        }
        return agreed.value_or(false);
    }

    void record() {
        saving_->line = book_.record(report_of(0).metrics, saving_->name);
        saving_->iteration = book_.iteration();
    }

    /// The ranks are to store their files.
    void store() {
        std::vector<std::vector<std::string>> files;
        for (int rank = 0; rank < size(); ++rank) {
            files.push_back(report_of(rank).files);
            for (const auto& item : report_of(rank).metadata) { // lower ranks win
                saving_->metadata.emplace(item.key(), item.value());
            }
        }
        const detail::FileOwners owners(std::move(files));
        for (int rank = 0; rank < size(); ++rank) {
            at(rank).storing = at(rank).answered;
            answers_.events.emplace_back(
                rank, launch::event::Store{.call = at(rank).storing,
                                           .run = book_.directory().location().path,
                                           .attempt = book_.attempt(),
                                           .checkpoint = saving_->name,
                                           .files = owners.copied_by(rank),
                                           .shared = owners.shared_by(rank)});
        }
    }

    void keep(int rank, const launch::event::Stored& stored) {
        if (!saving_ || at(rank).stored || stored.call != at(rank).storing) {
            refuse(rank, stored.call);
            return;
        }
        at(rank).stored = stored;
        if (!std::ranges::all_of(ranks_, [](const Rank& one) { return one.stored.has_value(); })) {
            return;
        }
        if (saving_->in_background) {
            commit_in_background();
            answer_if_all_have_called();
        } else {
            say_reported(commit());
        }
    }

    void commit_in_background() {
        try {
            (void)commit();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            failure_ = detail::failure_of(error);
            console::warn("%s was not stored: %s", saving_->name.c_str(), failure_->text().c_str());
            give_up();
        }
    }

    /// Returns the number of the report.
    std::int64_t commit() {
        std::vector<boost::json::object> shared;
        for (int rank = 0; rank < size(); ++rank) {
            require_success(rank, at(rank).stored->code, at(rank).stored->error);
            shared.push_back(at(rank).stored->shared);
        }
        detail::require_equal_files(shared);
        auto contents = book_.collect(saving_->name, size(), saving_->metadata);
        if (!saving_->in_background) {
            record();
        }
        book_.commit(saving_->name, size(), std::move(contents), saving_->line);
        answers_.saved = launch::event::Saved{saving_->name, saving_->iteration};
        return forget_saving().iteration;
    }

    void give_up() { book_.give_up(forget_saving().name); }

    Saving forget_saving() {
        for (Rank& one : ranks_) {
            one.stored.reset();
        }
        return *std::exchange(saving_, std::nullopt);
    }

    [[nodiscard]] const Report& report_of(int rank) { return std::get<Report>(*at(rank).call); }

    static void require_success(int rank, const std::string& code, const std::string& error) {
        if (!code.empty()) {
            detail::throw_error({.code = ErrorCode::parse(code),
                                 .message = detail::concat("rank ", rank, ": ", error)});
        }
    }

    void say_reported(std::int64_t iteration) {
        const std::string newest = book_.newest() ? book_.newest()->path.string() : "";
        const bool stops = !book_.stop_reason().empty() && !std::exchange(has_said_stop_, true);
        const std::string stop = stops ? book_.stop_reason() : "";
        answer([&](std::int64_t call) {
            return launch::event::Reported{call, iteration, newest, stop};
        });
    }

    /// Fails the calls that wait.
    void fail(const Failure& why) {
        if (saving_ && !saving_->in_background) {
            give_up();
        }
        answers_.events.clear();
        answer([&](std::int64_t call) {
            return launch::event::CallFailed{call, why.code.text(), why.message};
        });
    }

    /// Answers all calls that wait.
    template <class Make>
    void answer(Make make) {
        for (int rank = 0; rank < size(); ++rank) {
            Rank& one = at(rank);
            if (one.call) {
                one.call.reset();
                answers_.events.emplace_back(rank, make(one.answered++));
            }
        }
    }

    template <class Condition>
    [[nodiscard]] std::vector<int> ranks_if(Condition condition) {
        std::vector<int> found;
        for (int rank = 0; rank < size(); ++rank) {
            if (condition(at(rank))) {
                found.push_back(rank);
            }
        }
        return found;
    }

    [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

    RunBook& book_;
    std::vector<Rank> ranks_;
    std::optional<Saving> saving_;
    std::optional<Failure> failure_; ///< of the background
    bool has_said_stop_ = false;     ///< the script, which continues, may report more
    launch::CallAnswers answers_;
};

} // namespace rtrain::program
