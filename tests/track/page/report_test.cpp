// SPDX-License-Identifier: Apache-2.0
// What the page of a run shows: curves that keep their extremes, starts, text that stays text.
#include "support/thrown.hpp"

#include <rtrain/track/page/report_page.hpp>
#include <rtrain/track/page/run_facts.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace rtrain;
using test::contains;
using track::Curve;
using track::RunSummary;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The start of the run that a report is of.
struct Start {
    std::int64_t process = 1;
    std::int64_t resumed_at = 0; ///< iteration
};

Config line(std::int64_t iteration, Config metrics, const Start& start = {}) {
    metrics["training_iteration"] = iteration;
    metrics["time_total_s"] = static_cast<double>(iteration);
    metrics["iterations_since_restore"] = iteration - start.resumed_at;
    metrics["time_since_restore"] = static_cast<double>(iteration);
    metrics["pid"] = start.process;
    metrics["hostname"] = "node";
    metrics["date"] = "2026-01-02_03-04-05";
    metrics["config"] = Config{{"lr", 0.1}, {"model", Config{{"width", 8}}}};
    return metrics;
}

void add(RunSummary& run, Config report) {
    run.add(report);
    run.last = std::move(report);
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

} // namespace

TEST_CASE("Curve.few_points_are_all_kept") {
    Curve curve(8);
    for (int i = 1; i <= 8; ++i) {
        curve.add({i, i * 0.5});
    }
    const auto points = curve.points();
    REQUIRE(points.size() == 8);
    CHECK(points.front().iteration == 1);
    CHECK(points.back().value == 4);
    CHECK(curve.per_bucket() == 1);
}

TEST_CASE("Curve.no_spike_is_lost_among_many_points") {
    Curve curve(100);
    constexpr int reports = 100'000;
    for (int i = 1; i <= reports; ++i) {
        const double value = i == 33'333 ? 1e6 : i == 77'777 ? -1e6 : std::sin(i);
        curve.add({i, value});
    }
    const auto points = curve.points();
    CHECK(points.size() <= 2 * 100 + 2);
    CHECK(points.size() > 100);
    CHECK(points.front().iteration == 1);
    CHECK(points.back().iteration == reports);
    CHECK(std::is_sorted(points.begin(), points.end(),
                         [](auto& a, auto& b) { return a.iteration < b.iteration; }));
    REQUIRE(curve.highest());
    CHECK(curve.highest()->iteration == 33'333);
    CHECK(curve.lowest()->iteration == 77'777);
    const auto is_at = [](int iteration) {
        return [=](const Curve::Point& point) { return point.iteration == iteration; };
    };
    CHECK(std::any_of(points.begin(), points.end(), is_at(33'333)));
    CHECK(std::any_of(points.begin(), points.end(), is_at(77'777)));
}

TEST_CASE("Curve.one_nan_among_many_points_is_kept") {
    Curve curve(10);
    for (int i = 1; i <= 5000; ++i) {
        curve.add({i, i == 1234 ? std::nan("") : i == 4321 ? -infinity : 1.0});
    }
    const std::string json = to_json(curve);
    CHECK(count(json, "null") == 1);
    CHECK(count(json, "\"-inf\"") == 1);
    CHECK(contains(json, "1234"));
    CHECK(curve.lowest()->value == 1);
}

TEST_CASE("Curve.without_points_or_finite_values") {
    CHECK(to_json(Curve(10)) == R"({"x":[],"y":[],"per":1})");
    Curve curve(10);
    curve.add({1, std::nan("")});
    CHECK(to_json(curve) == R"({"x":[1],"y":[null],"per":1})");
    CHECK(!curve.lowest());
}

TEST_CASE("RunSummary.curves_are_of_metrics_that_are_numbers") {
    RunSummary run;
    add(run, line(1, {{"loss", 2}, {"val", Config{{"loss", 3.5}}}, {"phase", "warm"}}));
    add(run, line(2, {{"loss", nullptr}, {"val", Config{{"loss", "inf"}}}}));
    REQUIRE(run.curves().all().size() == 2);
    CHECK(to_json(*run.curves().find("loss")) == R"({"x":[1,2],"y":[2,null],"per":1})");
    CHECK(to_json(*run.curves().find("val/loss")) == R"({"x":[1,2],"y":[3.5,"inf"],"per":1})");
}

TEST_CASE("RunSummary.a_start_begins_where_reports_are_counted_anew") {
    RunSummary run;
    add(run, line(1, {}, {.process = 7}));
    add(run, line(2, {}, {.process = 7}));
    add(run, line(3, {}, {.process = 7, .resumed_at = 2})); // in the same process
    add(run, line(4, {}, {.process = 8, .resumed_at = 2})); // in another one
    run.add_superseded(line(3, {{"loss", 4}}, {.process = 7}));
    run.add_superseded(line(4, {{"loss", 5}}, {.process = 7}));
    REQUIRE(run.starts().size() == 3);
    CHECK(run.starts()[0].last == 2);
    CHECK(run.starts()[1].first == 3);
    CHECK(run.starts()[2].process == 8);
    CHECK(run.superseded_starts().size() == 1);
    const std::string page = report_page(run);
    CHECK(contains(page, "\"restarts\":[3,4]"));
    CHECK(contains(page, "made again by a later start"));
    CHECK(contains(page, R"("superseded":[
{"name":"loss","points":{"x":[3,4],"y":[4,5],"per":1}}])"));
}

TEST_CASE("RunSummary.time_is_shown_as_shares_but_a_metric_of_that_name_as_a_curve") {
    const Config time{{"data", 1.0},          {"forward", 2.0},   {"backward", 3.0},
                      {"communication", 1.5}, {"optimizer", 0.5}, {"checkpoint", 2.0},
                      {"steps", 10},          {"rows", 640}};
    RunSummary run;
    add(run, line(1, {{"time", time}}));
    add(run, line(2, {{"time", time}}));
    CHECK(run.curves().all().empty());
    CHECK(run.time().total_seconds() == 20);
    CHECK(run.time().rows() == 1280);
    CHECK(contains(report_page(run), "<td class=\"number\">30.0 %</td>"));

    RunSummary other;
    add(other, line(1, {{"time", 4}}));
    CHECK(other.curves().find("time") != nullptr);
    CHECK(!contains(report_page(other), "<h2>Time</h2>"));
}

TEST_CASE("ReportPage.has_the_newest_configuration_and_what_came_before_it") {
    RunSummary run;
    add(run, line(1, {{"loss", 1}}));
    add(run, line(2, {{"loss", 1}}));
    run.config = {{"lr", 0.5}, {"model", Config{{"width", 8}}}, {"warmup", 3}}; // no report yet
    std::string page = report_page(run);
    CHECK(contains(page, "<th scope=\"row\">lr</th><td>0.5</td><td>0.1 up to iteration 2</td>"));
    CHECK(contains(page, "<th scope=\"row\">warmup</th><td>3</td><td>not set up to iteration 2"));
    CHECK(contains(page, "<th scope=\"row\">model/width</th><td>8</td><td></td>"));
    Config third = line(3, {{"loss", 1}}, {.process = 2, .resumed_at = 2});
    third["config"] = run.config;
    add(run, third);
    CHECK(contains(report_page(run), "<td>0.5</td><td>0.1 up to iteration 2</td>"));
    RunSummary same; // of which nothing was changed
    add(same, line(1, {}));
    same.config = same.last.at("config").as_object();
    CHECK(contains(report_page(same), "<th scope=\"row\">lr</th><td>0.1</td></tr>"));
}

TEST_CASE("ReportPage.shows_models_ranks_hosts_versions_rates_and_axes") {
    RunSummary run;
    run.facts =
        to_json(track::RunFacts{.ranks = 4,
                                .hosts = 2,
                                .threads = 3,
                                .device = "cpu",
                                .libraries = {{"libtorch", "2.9.0"}, {"MPI", "Open <MPI>"}}},
                {{{"", "Net", 0, 1234567, 1000, 4938268}, {"fc1", "Linear", 1, 1000, 1000, 4000}}});
    const Config time{{"data", 0},      {"forward", 1},    {"backward", 2}, {"communication", 0},
                      {"optimizer", 1}, {"checkpoint", 0}, {"rows", 640}};
    add(run, line(1, {{"time", time}}));
    add(run, line(2, {{"time", time}}));
    const std::string page = report_page(run);
    CHECK(contains(page, "<td>Net</td><td class=\"number\">1,234,567</td>"));
    CHECK(contains(page, ">fc1</span></th><td>Linear</td>"));
    CHECK(contains(page, "<td>4, 3 threads each, cpu</td>"));
    CHECK(contains(page, "<th scope=\"row\">hosts</th><td>2, rank 0 on "));
    CHECK(contains(page, "<th scope=\"row\">rtrain</th><td>" RTRAIN_VERSION "</td>"));
    CHECK(contains(page, "<td>2.9.0</td>"));
    CHECK(contains(page, "Open &lt;MPI&gt;"));
    CHECK(contains(page, R"("rates":[
{"name":"rows/s","points":{"x":[1,2],"y":[160,160],"per":1}}])"));
    CHECK(contains(page, R"({"name":"time","points":{"x":[1,2],"y":[1,2],"per":1}})"));
    CHECK(contains(page, R"({"name":"rows","points":{"x":[1,2],"y":[640,1280],"per":1}})"));
    run.facts = {{"ranks", "x"}, {"models", {1, {{"parts", 2}}, {{"parts", {3, {{"name", 4}}}}}}}};
    CHECK(contains(report_page(run), "<h2>Environment</h2>")); // of a damaged file
}

TEST_CASE("ReportPage.says_that_no_backward_was_seen") {
    RunSummary run;
    add(run, line(1, {{"time", Config{{"data", 0},
                                      {"forward", 3},
                                      {"backward", 0},
                                      {"communication", 0},
                                      {"optimizer", 1},
                                      {"checkpoint", 0}}}}));
    const std::string page = report_page(run);
    CHECK(contains(page, "backward</th><td class=\"number\">not measured</td>"));
    CHECK(contains(page, "worker.prepare()"));
    CHECK(!contains(page, "id=\"charts\""));
    run.last.at("time").as_object()["rows"] = 64;
    run.last["training_iteration"] = 2;
    run.add(run.last); // no metric, but rows per second
    CHECK(contains(report_page(run), "id=\"charts\""));
}

TEST_CASE("TimeShares.many_reports_share_spans") {
    track::TimeShares shares;
    constexpr int reports = 10'000;
    for (int i = 1; i <= reports; ++i) {
        shares.add(i, {{"time", Config{{"data", 1},
                                       {"forward", 1},
                                       {"backward", 1},
                                       {"communication", 1},
                                       {"optimizer", 1},
                                       {"checkpoint", i == 1 ? 100 : 0}}}});
    }
    CHECK(shares.spans().size() <= 200);
    CHECK(shares.spans().back().last == reports);
    double data = 0;
    for (const auto& span : shares.spans()) {
        data += span.seconds[0];
    }
    CHECK(data == reports);
    CHECK(shares.spans().front().seconds[5] == 100);
}

TEST_CASE("ReportPage.of_a_run_without_reports") {
    RunSummary run;
    run.name = "empty";
    const std::string page = report_page(run);
    CHECK(contains(page, "Nothing was reported"));
    CHECK(contains(page, "<title>empty</title>"));
    CHECK(contains(page, "\"curves\":[]"));
}

TEST_CASE("ReportPage.what_a_run_is_called_and_says_stays_text") {
    const std::string evil = "</script><script>alert('\"&')</script>";
    RunSummary run;
    run.name = run.location = run.status = run.error = run.error_code = evil;
    run.checkpoints.push_back({evil, 1, {{evil, evil}}, true});
    Config report = line(1, {{evil, 1}, {"text", evil}});
    report["config"] = Config{{evil, evil}};
    report["hostname"] = report["date"] = evil;
    add(run, report);
    run.add_superseded(report);
    const std::string page = report_page(run);
    CHECK(count(page, "<script") == 2); // data and program
    CHECK(count(page, "</script") == 2);
    CHECK(!contains(page, "alert('\""));
    CHECK(contains(page, "&lt;/script&gt;&lt;script&gt;alert('&quot;&amp;')"));
}

TEST_CASE("ReportPage.images_are_shown_up_to_a_megabyte") {
    const std::string begin = "data:image/png;base64,";
    RunSummary run;
    run.checkpoints.push_back({"checkpoint_1", 1, {{"first", begin + "AAAA"}}, true});
    add(run, line(1, {{"first", begin + "AAAA"},
                      {"second", begin + "\"><script>"},
                      {"large", begin + std::string(1 << 20, 'A')}}));
    const std::string page = report_page(run);
    CHECK(contains(page, "<td><img alt=\"first\" src=\"data:image/png;base64,AAAA\"></td>"));
    CHECK(contains(page, "src=\"data:image/png;base64,&quot;&gt;&lt;script&gt;\">"));
    CHECK(contains(page, "<th scope=\"row\">large</th><td>an image</td>"));
    CHECK(contains(page, "<td>first an image</td>")); // of the checkpoint
    CHECK(contains(page, "img-src data:"));
}

TEST_CASE("ReportPage.bytes_that_are_no_text_become_question_marks") {
    RunSummary run;
    run.name = "a\xff";
    add(run, line(1, {{"loss\xc3", 1}, {"text", "\xed\xa0\x80"}}));
    const std::string page = report_page(run);
    CHECK(contains(page, "<title>a?</title>"));
    CHECK(contains(page, "\"name\":\"loss?\""));
}

TEST_CASE("ReportPage.is_small_whatever_was_reported") {
    RunSummary run;
    const std::string huge(1 << 20, '<');
    run.error = huge;
    for (int i = 1; i <= 5000; ++i) {
        Config metrics;
        for (int metric = 0; metric < 150; ++metric) {
            metrics[std::to_string(metric)] =
                i % 50 == 0 ? boost::json::value(nullptr) : -1e-5 * std::exp(std::sin(i + metric));
        }
        add(run, line(i, std::move(metrics)));
    }
    Config& config = run.last["config"].as_object();
    for (int i = 0; i < 2000; ++i) {
        config[std::to_string(i)] = i == 0 ? huge : "x";
        run.checkpoints.push_back({"checkpoint_" + std::to_string(i), i + 1, {}, i == 5});
    }
    const std::string page = report_page(run);
    CHECK(run.curves().left_out() == 50);
    CHECK(contains(page, "50 more are omitted."));
    CHECK(contains(page, "1002 more are omitted.")); // of the configuration
    CHECK(contains(page, "checkpoint_5<"));          // the best one, though it is old
    CHECK(page.size() < 5'000'000);
}

TEST_CASE("Html.durations_are_easy_to_read") {
    CHECK(track::html::duration(0.25) == "0.25 s");
    CHECK(track::html::duration(59.99) == "60 s");
    CHECK(track::html::duration(184.9) == "3 min 04 s");
    CHECK(track::html::duration(3599.9) == "59 min 59 s");
    CHECK(track::html::duration(7380) == "2 h 03 min");
}
