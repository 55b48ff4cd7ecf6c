// SPDX-License-Identifier: Apache-2.0
/// @file
/// The function of rtrain that the program has called, so that errors and hang reports can name it
/// next to the collective within. Cost tier 0: std only; any room may include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rtrain {

/// A function in which ranks communicate.
struct UserCall {
    enum Name : std::uint8_t {
        none, ///< the collective itself
        broadcast,
        all_reduce,
        all_gather,
        prepare,
        construct,
        forward,
        backward,
        optimizer_step,
        clip,
        average_parameters,
        edit,
        gathered,
        join,
        next_batch,
        fit,
        report,
        restore,
        epochs,
        preemption,
        reported_checkpoints,
        save,
        start
    };
    static constexpr std::array<std::string_view, 23> names{"",
                                                            "broadcast()",
                                                            "all_reduce()",
                                                            "all_gather()",
                                                            "prepare()",
                                                            "construct()",
                                                            "forward pass",
                                                            "backward pass",
                                                            "optimizer.step()",
                                                            "clip_grad_norm_()",
                                                            "average_parameters()",
                                                            "edit()",
                                                            "gathered()",
                                                            "join()",
                                                            "the next batch",
                                                            "fit() of a preprocessor",
                                                            "report()",
                                                            "restore()",
                                                            "epochs()",
                                                            "preemption()",
                                                            "get_all_reported_checkpoints()",
                                                            "saving between two batches",
                                                            "the start of fit()"};

    Name name = none;
    std::uint32_t number = 0; ///< of the step or the report, from 1; 0: none

    /// For example "report() 3 (all_gather of 80 Byte)", for a collective within. Numbers make many
    /// different texts: omit them in texts that are kept.
    [[nodiscard]] std::string around(const std::string& within, bool numbered = true) const {
        if (name == none) {
            return within;
        }
        std::string text(names[static_cast<std::size_t>(name)]);
        if (numbered && number != 0) {
            text += ' ' + std::to_string(number);
        }
        return text + " (" + within + ')';
    }

    /// The call of this thread.
    [[nodiscard]] static const UserCall& current() noexcept { return mutable_current(); }

    /// While it exists, this thread is in a call; in the outer one, if it is already in a call.
    class In {
    public:
        explicit In(Name name, std::uint64_t number = 0) noexcept
            : is_outer_(current().name == none) {
            if (is_outer_) {
                mutable_current() = {name, static_cast<std::uint32_t>(number)};
            }
        }
        In(const In&) = delete;
        In& operator=(const In&) = delete;
        ~In() {
            if (is_outer_) {
                mutable_current() = {};
            }
        }

    private:
        bool is_outer_;
    };

private:
    [[nodiscard]] static UserCall& mutable_current() noexcept {
        static thread_local UserCall call;
        return call;
    }
};

} // namespace rtrain
