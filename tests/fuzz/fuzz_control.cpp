// SPDX-License-Identifier: Apache-2.0
// Any bytes, as what comes over the control channel. The first byte says for whom (bit 0), and
// whether it is one text (bit 1) or a stream of frames, in pieces of which size (the other bits).
// What is accepted can be sent again and is the same.
#include "require.hpp"

#include <rtrain/launch/control/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

using namespace rtrain;
using namespace rtrain::launch;

namespace {

std::string text_in_frame(const std::string& frame) {
    FrameReader reader;
    reader.append(frame);
    const auto text = reader.next();
    require(text.has_value(), "a frame that was made is complete");
    require(!reader.next().has_value(), "and one");
    return *text;
}

void parse_rank(std::string_view text) {
    std::optional<FromRank> message;
    try {
        message = parse_from_rank(text);
    } catch (const LaunchError& error) {
        require(error.code() == "RT-L9", "refusals have a code");
        return;
    }
    const auto check = [](const auto& one) {
        require(parse_from_rank(text_in_frame(encode(one))) == FromRank(one),
                "messages of ranks come back");
    };
    if (auto* const report = std::get_if<RankReport>(&*message)) {
        require(report->rank >= 0 && report->cpu_s >= 0, "numbers are not negative");
        report->waiting_in = json::clean_text(report->waiting_in, 255);
        report->reading = json::clean_text(report->reading, 255);
        check(*report);
    } else if (auto* const hello = std::get_if<Hello>(&*message)) {
        require(hello->rank >= 0 && hello->pid >= 0 && !hello->local, "numbers are not negative");
        hello->host = json::clean_text(hello->host, 255);
        check(*hello);
    } else {
        check(std::get<RankEvent>(*message));
    }
}

void parse_driver(std::string_view text) {
    std::optional<DriverEvent> event;
    try {
        event = parse_from_driver(text);
    } catch (const LaunchError& error) {
        require(error.code() == "RT-L9", "refusals have a code");
        return;
    }
    require(parse_from_driver(text_in_frame(encode(*event))) == *event,
            "messages of the driver come back");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const auto parse = (data[0] & 1U) == 0 ? parse_rank : parse_driver;
    const bool is_text = (data[0] & 2U) != 0;
    const std::size_t piece = std::size_t{data[0]} / 4 + 1;
    std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (is_text) {
        parse(rest);
        const std::string clean = json::clean_text(rest, 4096);
        require(clean.size() <= 4096, "texts are cut");
        const RankEvent stack = event::Stack{clean};
        require(std::get<RankEvent>(parse_from_rank(text_in_frame(encode(stack)))) == stack,
                "any text can be sent");
        return 0;
    }
    FrameReader reader;
    std::size_t taken = 0;
    try {
        while (!rest.empty()) {
            const std::string_view part = rest.substr(0, piece);
            rest.remove_prefix(part.size());
            reader.append(part);
            while (const auto text = reader.next()) {
                taken += 4 + text->size();
                require(taken < size, "frames are no longer than what has come");
                parse(*text);
            }
        }
    } catch (const LaunchError& error) {
        require(error.code() == "RT-L9", "refusals have a code");
    }
    return 0;
}
