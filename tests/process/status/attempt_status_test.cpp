// SPDX-License-Identifier: Apache-2.0
// An attempt ends by what happens in it, not by what its function catches, and leaves nothing to
// the next.
#include "support/training.hpp"

#include <rtrain/process/throw_for_good.hpp>

#include <doctest/doctest.h>

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cfenv>
#include <stdexcept>
#include <string>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;

namespace attempt_test {
namespace {

using Local = Trainer<backend::Local>;

RunConfig run_in(const test::Directory& directory, int max_failures = 0) {
    return {.name = "r",
            .storage_path = directory.path(),
            .failure = {.max_failures = max_failures, .backoff_s = 0}};
}

/// Whether all settings are those of a fresh process.
void require_defaults() {
    CHECK(c10::GradMode::is_enabled());
    CHECK(!c10::InferenceMode::is_enabled());
    CHECK(!at::autocast::is_autocast_enabled(at::kCPU));
    CHECK((at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16));
    CHECK(at::autocast::is_autocast_cache_enabled());
    CHECK(at::autocast::increment_nesting() == 1);
    CHECK(at::autocast::decrement_nesting() == 0);
    CHECK((torch::zeros({1}).scalar_type() == torch::kFloat));
    CHECK(!at::globalContext().deterministicAlgorithms());
    CHECK(!at::globalContext().benchmarkCuDNN());
    CHECK((at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST));
    CHECK(!torch::autograd::AnomalyMode::is_enabled());
    CHECK(std::fegetround() == FE_TONEAREST);
    CHECK((torch::full({1}, 1e-40F) * 1).item<float>() != 0); // denormal numbers count
}

/// Changes all of them, and leaves them so.
void change_settings() {
    c10::GradMode::set_enabled(false);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::increment_nesting();
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setBenchmarkCuDNN(true);
    at::globalContext().setFloat32MatmulPrecision("medium");
    torch::autograd::AnomalyMode::set_enabled(true);
    at::globalContext().setFlushDenormal(true);
}

} // namespace

TEST_CASE("Attempt.a_report_that_failed_fails_it_although_it_was_caught") {
    const test::Directory directory("attempt-report");
    bool went_on = false;
    std::string again;
    const auto message = message_of([&] {
        Local({.run = run_in(directory)}).fit([&](auto& worker) {
            worker.report({{"loss", 1}});
            try {
                worker.report({{"pid", 1}}); // a name of rtrain's
            } catch (const std::exception&) {
                went_on = true;
            }
            again = code_of([&] { worker.barrier(); });
        });
    });
    CHECK(went_on);
    CHECK(again == "RT-C10");
    CHECK(contains(message, "RT-T1"));
    CHECK(contains(message, "RT-C10"));
    CHECK(contains(message, "the training function caught this error"));
    CHECK(Result::from_path(directory.path() / "r").error.has_value());
}

TEST_CASE("Attempt.an_error_of_communication_fails_it_although_it_was_caught") {
    const test::Directory directory("attempt-comm");
    for (const std::string code : {"RT-X4", "RT-X10"}) {
        CAPTURE(code);
        int calls = 0;
        const auto message = message_of([&] {
            Local({.run = run_in(directory)}).fit([&](auto& worker) {
                try {
                    throw_for_good(CommError(code, "ranks are apart"));
                } catch (...) {
                    ++calls;
                }
                try {
                    worker.report({{"loss", 1}});
                } catch (...) {
                    ++calls;
                }
            });
        });
        CHECK(calls == 2);
        CHECK(contains(message, std::string("ranks are apart; the training function caught")));
        CHECK(contains(message, code));
    }
    // The next attempt knows nothing of it.
    int attempts = 0;
    Local({.run = run_in(directory, 1)}).fit([&](auto& worker) {
        if (attempts++ == 0) {
            (void)code_of([] { throw_for_good(CommError("RT-X10", "ranks are apart")); });
            return;
        }
        worker.report({{"loss", 1}});
    });
    CHECK(attempts == 2);
    // Outside of a training function, nothing is noted.
    (void)code_of([] { throw_for_good(CommError("RT-X10", "ranks are apart")); });
    const test::Directory other("attempt-after-comm");
    Local({.run = run_in(other)}).fit([](auto& worker) { worker.report({{"loss", 1}}); });
}

TEST_CASE("Attempt.a_state_that_cannot_be_saved_fails_it_although_that_was_caught") {
    struct Throws {
        bool* throws;
        void save(StateWriter& /*out*/) const {
            if (*throws) {
                throw 42; // NOLINT
            }
        }
        void load(const StateReader& /*in*/) {}
    };
    for (const bool in_report : {false, true}) {
        CAPTURE(in_report);
        const test::Directory directory("attempt-save");
        bool throws = false;
        int caught = 0;
        const auto message = message_of([&] {
            Local({.run = run_in(directory)}).fit([&](auto& worker) {
                Throws object{&throws};
                auto state = State{}.add("object", object);
                try {
                    for (const int epoch : worker.epochs(3, state)) {
                        throws = true;
                        if (in_report) {
                            worker.report({{"epoch", epoch}}, state);
                        }
                        worker.stop(); // saves at the end of the epoch
                    }
                } catch (...) {
                    ++caught;
                }
            });
        });
        CHECK(caught == 1);
        CHECK(contains(message, "an object of type int, 42"));
        CHECK(contains(message, "the training function caught this error"));
    }
}

TEST_CASE("Attempt.one_begins_with_the_settings_of_torch_that_the_first_began_with") {
    require_defaults();
    const test::Directory directory("attempt-settings");
    int attempts = 0;
    Local({.run = run_in(directory, 2)}).fit([&](auto& worker) {
        require_defaults();
        change_settings();
        if (++attempts < 3) {
            throw std::runtime_error("bad luck");
        }
        worker.report({{"loss", 1}});
    });
    CHECK(attempts == 3);
    require_defaults(); // so does what follows in main()
}

} // namespace attempt_test
