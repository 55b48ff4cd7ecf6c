// SPDX-License-Identifier: Apache-2.0
// rtrain's trackers in the suite for everybody's, and trackers that it must notice.
#include "track/offline/offline_files.hpp"

#include <rtrain/testing/tracker.hpp>
#include <rtrain/track/files/csv.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/http/http_exchange.hpp>
#include <rtrain/track/mlflow/mlflow.hpp>
#include <rtrain/track/mlflow/mlflow_note.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/wandb.hpp>
#include <rtrain/track/tensorboard/event_file.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

using namespace rtrain;
using testing::ShownReports;
namespace fs = std::filesystem;

namespace {

ShownReports read_json_lines(const fs::path& run) {
    ShownReports shown;
    std::ifstream input(run / "deep/metrics.jsonl");
    for (std::string line; std::getline(input, line);) {
        const Config report = json::parse(line).as_object();
        shown.emplace_back(track::number_of(report), report.at("loss").to_number<double>());
    }
    return shown;
}

/// The rows of RFC 4180.
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
    std::vector<std::vector<std::string>> rows{{""}};
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string& cell = rows.back().back();
        if (text[i] == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
            cell += text[++i];
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (quoted || (text[i] != ',' && text[i] != '\r' && text[i] != '\n')) {
            cell += text[i];
        } else if (text[i] == ',') {
            rows.back().emplace_back();
        } else if (text[i] == '\n') {
            rows.push_back({""});
        }
    }
    rows.pop_back();
    return rows;
}

ShownReports read_csv(const fs::path& run) {
    const auto rows = rows_of(storage::read_file(run / "table.csv"));
    const auto column = [&](const std::string& name) {
        const auto at = std::ranges::find(rows.at(0), name);
        return static_cast<std::size_t>(at - rows.at(0).begin());
    };
    ShownReports shown;
    for (std::size_t i = 1; i < rows.size(); ++i) {
        REQUIRE(rows[i].size() == rows[0].size());
        shown.emplace_back(std::stoll(rows[i].at(column(track::iteration_field))),
                           json::parse(rows[i].at(column("loss"))).to_number<double>());
    }
    return shown;
}

/// The scalar "loss" of an event's summary.
std::optional<double> loss_in(std::string_view summary) {
    std::optional<double> loss;
    track::event::Fields values(summary);
    while (const auto value = values.next()) {
        bool is_loss = false;
        float number = 0;
        track::event::Fields parts(value->bytes);
        while (const auto part = parts.next()) {
            is_loss = is_loss || (part->number == 1 && part->bytes == "loss");
            if (part->number == 2) {
                std::memcpy(&number, part->bytes.data(), sizeof number);
            }
        }
        loss = is_loss ? std::optional<double>(number) : loss;
    }
    return loss;
}

/// As TensorBoard does, which tensorboard_test.py has read such files with.
ShownReports read_events(const fs::path& run) {
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(run / "tensorboard")) {
        if (entry.is_regular_file()) {
            files.insert(entry.path());
        }
    }
    ShownReports shown;
    for (const fs::path& file : files) {
        std::ifstream input(file, std::ios::binary);
        while (const auto event = track::event::next_event(input)) {
            const auto seen = track::event::look_at(*event);
            if (seen.is_start) {
                std::erase_if(shown, [&](const auto& one) { return one.first >= seen.step; });
            }
            track::event::Fields fields(*event);
            while (const auto field = fields.next()) {
                if (const auto loss = field->number == 5 ? loss_in(field->bytes) : std::nullopt) {
                    shown.emplace_back(seen.step, *loss);
                }
            }
        }
    }
    return shown;
}

/// On the server of mlflow_conformance_test.py.
ShownReports read_mlflow(const fs::path& run) {
    const auto note = track::MlFlowNote::read(run / "mlflow.json").value();
    const auto answer = track::http_exchange(
        track::parse_url(note.uri),
        {.target = "/api/2.0/mlflow/metrics/get-history?metric_key=loss&run_id=" + note.run_id});
    ShownReports shown;
    const Config found = json::parse(answer.body).as_object();
    if (const auto* const points = found.if_contains("metrics")) {
        for (const auto& point : points->as_array()) {
            shown.emplace_back(point.at("step").as_int64(), point.at("value").to_number<double>());
        }
    }
    std::ranges::sort(shown);
    return shown;
}

ShownReports read_wandb(const fs::path& run) {
    const test::WandbRun shown_run = test::read_wandb(run);
    ShownReports shown;
    for (std::size_t i = 0; i < shown_run.history.size(); ++i) {
        const auto& items = shown_run.history.at(i);
        CHECK(items.at("_step") == std::to_string(shown_run.steps.at(i)));
        shown.emplace_back(std::stoll(items.at("_step")),
                           json::parse(items.at("loss")).to_number<double>());
    }
    CHECK((shown.empty() || shown_run.summary.at("loss") == shown_run.history.back().at("loss")));
    return shown;
}

ShownReports read_comet(const fs::path& run) {
    ShownReports shown;
    for (const Config& payload : test::read_comet(run).payloads("metric_msg")) {
        const auto& metric = payload.at("metric").as_object();
        if (metric.at("metricName").as_string() == "loss") {
            shown.emplace_back(metric.at("step").as_int64(),
                               metric.at("metricValue").to_number<double>());
        }
    }
    return shown;
}

/// "number loss" in each line of "losses".
ShownReports read_losses(const fs::path& run) {
    ShownReports shown;
    std::ifstream input(run / "losses");
    for (std::pair<std::int64_t, double> one; input >> one.first >> one.second;) {
        shown.push_back(one);
    }
    return shown;
}

/// As simple as can be: begins anew each time that the run is taken up.
struct Losses {
    fs::path path{};
    std::ofstream file{};

    [[nodiscard]] std::string output() const { return "losses"; }
    void start(const track::RunInfo& info) { path = info.directory / "losses"; }
    track::Position rewind(track::Position /*position*/) {
        file = std::ofstream(path);
        return {};
    }
    void write(const track::Line& line) {
        if (!line.is_step) {
            file << line.number << ' ' << line.values.at("loss").to_number<double>() << std::endl;
        }
    }
    void finish() { file.close(); }
};

struct ForgetsNothing : Losses {
    track::Position rewind(track::Position /*position*/) {
        file = std::ofstream(path, std::ios::app);
        return {};
    }
};
struct TakesAllForItsOwn : Losses {
    track::Position rewind(track::Position position) {
        file = std::ofstream(path, std::ios::app);
        return position;
    }
};
/// Behind a kill it lacks what it says that it has.
struct ShowsAtTheEnd : Losses {
    std::string text{};
    track::Position rewind(track::Position position) {
        const ShownReports had = read_losses(path.parent_path());
        file = std::ofstream(path);
        text.clear();
        for (const auto& [number, loss] : had) {
            text += number <= position.iteration
                        ? std::to_string(number) + ' ' + std::to_string(loss) + '\n'
                        : "";
        }
        return position;
    }
    void write(const track::Line& line) {
        text += std::to_string(line.number) + ' ' +
                std::to_string(line.values.at("loss").to_number<double>()) + '\n';
    }
    void finish() { file << text << std::flush; }
};
struct WantsNumbers : Losses {
    void write(const track::Line& line) {
        if (const auto* const value = line.values.if_contains("changes")) {
            (void)value->to_number<double>();
        }
        Losses::write(line);
    }
};
struct TakesStepsForReports : Losses {
    void write(const track::Line& line) {
        file << line.number << ' ' << line.values.at("loss").to_number<double>() << std::endl;
    }
};
struct Strays : Losses {
    void finish() { std::ofstream(path.parent_path() / "more"); }
};
struct IsAhead : Losses {
    track::Position rewind(track::Position position) {
        (void)Losses::rewind(position);
        return {.iteration = position.iteration + 1};
    }
};

} // namespace

RTRAIN_TEST_TRACKER(JsonLines, read_json_lines, track::JsonLines("deep/metrics.jsonl"));
RTRAIN_TEST_TRACKER(Csv, read_csv, track::Csv("table.csv"));
RTRAIN_TEST_TRACKER(TensorBoard, read_events, track::TensorBoard());
RTRAIN_TEST_TRACKER(MlFlow, read_mlflow, track::MlFlow());
RTRAIN_TEST_TRACKER(Wandb, read_wandb, track::Wandb());
RTRAIN_TEST_TRACKER(Comet, read_comet, track::Comet());
RTRAIN_TEST_TRACKER(Losses, read_losses, Losses());

#define MUST_FAIL(type, holds)                                                                     \
    TEST_CASE("Tracker.suite_notices." #type "." #holds* doctest::should_fail()) {                 \
        testing::TrackerSuite(read_losses, [] { return type{}; }).holds();                         \
    }
MUST_FAIL(IsAhead, shows_each_report_once)
MUST_FAIL(ForgetsNothing, forgets_what_is_made_again)
MUST_FAIL(TakesAllForItsOwn, forgets_what_is_made_again)
MUST_FAIL(ForgetsNothing, goes_on_in_another_process)
MUST_FAIL(ForgetsNothing, may_be_killed_at_any_line)
MUST_FAIL(ShowsAtTheEnd, may_be_killed_at_any_line)
MUST_FAIL(WantsNumbers, takes_odd_metrics)
MUST_FAIL(TakesStepsForReports, tells_steps_from_reports)
MUST_FAIL(Strays, writes_only_its_output)
