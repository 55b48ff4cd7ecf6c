// SPDX-License-Identifier: Apache-2.0
// Writes files of trackers, which tensorboard_test.py, wandb_test.py and comet_test.py read with
// what the services themselves read them with.
// Argument: a directory. Prints nothing.
#include "tracked_run.hpp"

#include <rtrain/base/text/base64.hpp>
#include <rtrain/format/png_writer.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/track/lines/reported_image.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/wandb.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

using namespace rtrain;
using test::TrackedRun;

namespace {

std::vector<track::AnyTracker> trackers() {
    return {track::TensorBoard{},
            track::Wandb{{.project = "digits", .notes = "of a test", .tags = {"a", "b"}}},
            track::Comet{{.project = "digits", .workspace = "w", .tags = {"a", "b\nc"}}}};
}

/// Byte i of the pixels is 7 * i modulo 256, as tensorboard_test.py knows.
std::string image(format::ImageMode mode, std::int64_t height, std::int64_t width) {
    std::vector<std::uint8_t> pixels(
        static_cast<std::size_t>(height * width * format::channels_of(mode)));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
        pixels[i] = static_cast<std::uint8_t>(7 * i);
    }
    return std::string(track::image_begin) +
           rtrain::detail::to_base64(
               format::encode_png({.height = height, .width = width}, mode, pixels.data()));
}

/// Every sort of metric, and names and values that break things.
void write_all(const std::filesystem::path& directory) {
    const Config config{{"lr", 0.25},
                        {"deep", {{"er", "text"}}},
                        {"on", true},
                        {"layers", boost::json::array{1, 2}}};
    TrackedRun run(directory, trackers(), std::chrono::seconds(8), config);
    run.begin();
    constexpr double infinity = std::numeric_limits<double>::infinity();
    run.report({{"loss", 0.5},
                {"count", 3},
                {"nested", {{"f1", 0.75}}},
                {"ok", true},
                {"words", "gr\xc3\xbc\xc3\x9f"
                          "e"},
                {"weights", boost::json::array{-1, 0, 0.5, 3, infinity}},
                {"empty", boost::json::array{}},
                {"a/\"b\"\n<script>", 1},
                {"broken \xff", "text \xc3"},
                {"changes", 1},
                {"grey", image(format::ImageMode::grey, 37, 5)},
                {"nested image", Config{{"rgb", image(format::ImageMode::rgb, 1, 300)}}},
                {"no image", "data:image/png;base64,iVBORw0KGgo="}});
    run.report({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"changes", "now a text"}});
    run.report({{"loss", infinity}, {"count", -infinity}});
    Config many;
    for (int i = 0; i < 10'000; ++i) {
        many["many/" + std::to_string(i)] = i;
    }
    run.report(many);
    run.log({{"loss", 7.5}});
    run.close();
}

/// A run that is taken up again and again, each time with its newest file cut off somewhere.
void restart_often(const std::filesystem::path& directory) {
    int attempt = 0;
    for (const auto& [behind, reports, cut] : std::vector<std::tuple<int, int, int>>{{0, 5, 0},
                                                                                     {3, 4, 3},
                                                                                     {5, 3, 100},
                                                                                     {8, 2, 10'000},
                                                                                     {10, 0, 0},
                                                                                     {10, 3, 0},
                                                                                     {2, 9, 0}}) {
        TrackedRun run(directory, trackers());
        run.begin(behind);
        ++attempt;
        for (int i = 1; i <= reports; ++i) {
            run.report({{"loss", 100 * attempt + behind + i}});
        }
        run.close();
        std::filesystem::path newest;
        for (const auto& entry : std::filesystem::directory_iterator(directory / "tensorboard")) {
            newest = std::max(newest, entry.path());
        }
        const auto size = static_cast<int>(std::filesystem::file_size(newest));
        std::filesystem::resize_file(newest, static_cast<std::uintmax_t>(std::max(0, size - cut)));
    }
}

/// Steps 1 to 20; then the run resumes after step 12, and makes 3 more.
void write_steps(const std::filesystem::path& directory) {
    int first = 1;
    for (const auto& [behind, last] : {std::pair(0, 20), std::pair(12, 15)}) {
        track::TensorBoard board;
        board.start({.name = "r", .directory = directory});
        if (board.rewind({.iteration = 0, .step = behind}) != track::Position{0, behind}) {
            std::exit(EXIT_FAILURE);
        }
        for (int step = behind + 1; step <= last; ++step) {
            const Config values{{"step", step}, {"timestamp", 1.5}, {"loss", 100 * first + step}};
            board.write({.is_step = true, .number = step, .values = values, .text = ""});
        }
        board.finish();
        ++first;
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    const std::filesystem::path place = argv[1];
    for (const char* name : {"all", "restarts", "steps"}) {
        std::filesystem::create_directories(place / name);
    }
    write_all(place / "all");
    restart_often(place / "restarts");
    write_steps(place / "steps");
    return 0;
}
