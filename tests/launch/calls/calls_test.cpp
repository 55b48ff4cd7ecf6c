// SPDX-License-Identifier: Apache-2.0
// Calls of main() to its ranks: who waits for whom, and what a killed process leaves of the record.
#include "support/files.hpp"

#include <rtrain/base/error.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_board.hpp>
#include <rtrain/launch/calls/call_record.hpp>
#include <rtrain/launch/calls/driver_calls.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace calls_test {

using namespace rtrain;
using namespace rtrain::launch;
using namespace std::chrono_literals;

namespace {

Call call(std::int64_t number, const std::string& name = "train") {
    return {.number = number, .name = name, .arguments = {{"epochs", number}}};
}

AnsweredCall answered(std::int64_t number) {
    return {.call = call(number),
            .answer = {.number = number, .values = {{"loss", 0.1 * static_cast<double>(number)}}}};
}

} // namespace

TEST_CASE("CallBoard.a_call_is_served_and_answered") {
    CallBoard board;
    std::thread ranks([&] {
        for (int number = 1; number <= 3; ++number) {
            const auto got = board.wait(number, 60s);
            REQUIRE(got);
            CHECK(*got == call(number));
            CHECK(board.wait(number, 0s) == got); // again, for ranks that start over
            board.answer({.number = number - 1}); // late
            board.answer({.number = number, .values = {{"number", number}}});
        }
    });
    for (int number = 1; number <= 3; ++number) {
        CHECK(board.call(call(number)).values.at("number") == number);
    }
    ranks.join();
    CHECK(!board.wait(4, 0s));
    CHECK(!board.open());
}

TEST_CASE("CallBoard.a_driver_gets_the_calls") {
    CallBoard board;
    std::vector<Call> sent;
    board.connect([&](const Call& given) {
        sent.push_back(given);
        std::thread([&board, given] { board.answer({.number = given.number}); }).detach();
    });
    CHECK(board.call(call(1)).number == 1);
    CHECK(board.call(call(2)).number == 2);
    CHECK(sent == std::vector{call(1), call(2)});
}

TEST_CASE("CallBoard.the_end_of_the_run_ends_a_call") {
    CallBoard board;
    std::thread ranks([&] {
        while (!board.open()) {
            std::this_thread::yield();
        }
        CHECK(board.end(std::make_exception_ptr(LaunchError("RT-L3", "gone"))));
    });
    CHECK_THROWS_AS((void)board.call(call(1)), LaunchError);
    ranks.join();
    CHECK_THROWS_AS((void)board.call(call(2)), LaunchError);
    CHECK(!board.end(std::make_exception_ptr(LaunchError("RT-L3", "again")))); // no one is waiting
}

TEST_CASE("DriverCalls.a_rank_gets_calls_until_a_newer_one_comes") {
    DriverAnswers driver;
    std::vector<std::string> told;
    DriverCalls calls(driver, [&](const event::Answer& answer) { told.push_back(answer.text); });
    CHECK(!calls.wait(1, 0s));
    driver.add(event_of(call(1)));
    CHECK(calls.wait(1, 0s) == call(1));
    CHECK(calls.wait(1, 0s) == call(1));
    CHECK(!calls.wait(2, 0s));
    std::thread later([&] { driver.add(event_of(call(2, "validate"))); });
    CHECK(calls.wait(2, 60s) == call(2, "validate"));
    later.join();
    calls.answer({.number = 2, .values = {{"loss", 0.5}}});
    REQUIRE(told.size() == 1);
    const CallReply back = answer_from(json::parse(told[0]).as_object());
    CHECK(back.number == 2);
    CHECK(back.values.at("loss").as_double() == 0.5);
    DriverCalls(driver, nullptr).answer({.number = 2}); // of another rank
}

TEST_CASE("CallRecord.the_same_command_finds_the_answers") {
    const test::Directory directory("calls");
    const storage::Location run{storage::Local{}, directory.path().string()};
    CallRecord record(run);
    record.read();
    CHECK(record.find(1) == nullptr);
    record.append(answered(1));
    AnsweredCall refused = answered(2);
    refused.answer.refusal = Failure{.code = "RT-F33", .message = "no data"};
    record.append(refused);
    CallRecord later(run);
    later.read();
    REQUIRE(later.size() == 2);
    CHECK(later.find(1)->call == call(1));
    CHECK(later.find(1)->answer.values.at("loss").as_double() == 0.1);
    CHECK(later.find(2)->answer.refusal->code == ErrorCode("RT-F33"));
    CHECK(later.find(0) == nullptr);
    CHECK(later.find(3) == nullptr);
}

TEST_CASE("CallRecord.a_call_without_its_end_was_not_answered") {
    const test::Directory directory("calls-cut");
    const storage::Location run{storage::Local{}, directory.path().string()};
    const auto file = directory.path() / CallRecord::file_name;
    {
        CallRecord record(run);
        record.append(answered(1));
        record.append(answered(2));
    }
    const std::string whole = test::read(file);
    const std::size_t first = whole.find('\n') + 1;
    for (std::size_t size = first; size < whole.size(); ++size) {
        CAPTURE(size);
        test::write(file, whole.substr(0, size));
        CallRecord record(run);
        record.read();
        REQUIRE(record.size() == 1);
        record.append(answered(2));
        CHECK(test::read(file) == whole);
    }
}

TEST_CASE("CallRecord.a_damaged_record_is_an_error") {
    const test::Directory directory("calls-damaged");
    CallRecord record({storage::Local{}, directory.path().string()});
    for (const char* const text : {"{\n", "[]\n", "{}\n", "{\"name\":1}\n", "null\n"}) {
        CAPTURE(text);
        test::write(directory.path() / CallRecord::file_name, text);
        CHECK_THROWS_WITH_AS(record.read(), doctest::Contains("RT-F37"), LaunchError);
    }
}

} // namespace calls_test
