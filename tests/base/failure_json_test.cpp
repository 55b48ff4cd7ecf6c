// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure_json.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using Kind = Failure::Kind;
using test::contains;

TEST_CASE("Failure.comes_back_from_json_as_it_was") {
    for (const Kind kind : {Kind::threw, Kind::interrupted, Kind::died, Kind::hang, Kind::start_up,
                            Kind::preemption, Kind::configuration}) {
        for (const char* const code : {"", "RT-T2", "RT-X9", "RT-T3", "RT-L2"}) {
            const Failure failure{.kind = kind,
                                  .code = ErrorCode::parse(code),
                                  .rank = kind == Kind::died ? 3 : -1,
                                  .message = "line\n\"two\"",
                                  .from_outside = kind == Kind::died};
            CHECK(failure_from(to_json(failure)) == failure);
            CHECK(decode_failure(encode(failure, 1000)) == failure);
        }
    }
}

TEST_CASE("Failure.what_was_written_before_it_had_all_its_fields_is_read") {
    const auto read = [](const char* code) {
        return failure_from({{"code", code}, {"message", "why"}, {"checkpoint", "c"}});
    };
    CHECK(read("RT-L2") == Failure{.code = "RT-L2", .message = "why"});
    CHECK(read("RT-X1").kind == Kind::interrupted);
    CHECK(read("RT-X9").kind == Kind::interrupted);
    CHECK(read("RT-T3").kind == Kind::preemption);
    // And what is to come.
    CHECK(failure_from({{"code", "RT-D1"}, {"message", "why"}, {"how", "melted"}}).kind ==
          Kind::threw);
    // Older builds read these two fields of what a rank says about an exception, and no others.
    CHECK(to_json(Failure{.kind = Kind::interrupted, .code = "RT-X1", .message = "why"}).size() ==
          2);
    CHECK(to_json(Failure{.code = "RT-T2", .message = "why"}).size() == 2);
}

TEST_CASE("Failure.travels_in_a_message_of_limited_size") {
    for (const std::string& message :
         {std::string(10'000, 'x'), std::string(10'000, '\x01'), std::string(10'000, '\xff')}) {
        const std::string line = encode({.code = "RT-T2", .message = message}, 3000);
        CHECK(line.size() <= 3000);
        const Failure failure = decode_failure(line);
        CHECK(failure.message.size() > 200);
        CHECK(failure.message[0] == (message[0] == '\xff' ? '?' : message[0]));
    }
}

TEST_CASE("Failure.text_is_what_the_exception_says") {
    CHECK(Failure{.code = "RT-D4", .message = "torn"}.text() == "torn [RT-D4]");
    CHECK(Failure{.code = "RT-T2", .message = "torn"}.text() == "torn");
    CHECK(Failure{.kind = Kind::died, .message = "the process died"}.text() == "the process died");
}

TEST_CASE("Failure.what_is_no_exception_is_described") {
    const auto text = [](auto value) {
        return rtrain::detail::failure_in([&] { throw value; }).value().message;
    };
    CHECK(text(42) == "threw an object of type int, 42, which is not derived from std::exception");
    CHECK(contains(text("full"), "\"full\""));
    CHECK(contains(text(std::string("full")), "\"full\""));
    CHECK(contains(text(2.5), "an object of type double, which"));
}
