// SPDX-License-Identifier: Apache-2.0
// write_report_page <reports> <file>: the page of a run that nobody made, which has all there can
// be on one.
#include <rtrain/track/page/report_page.hpp>
#include <rtrain/track/page/run_facts.hpp>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>

namespace {

using namespace rtrain;

Config time_of(int i) {
    return {{"data", 0.1},       {"forward", 0.3},
            {"backward", 0.55},  {"communication", 0.1 * (1 + std::sin(i * 0.05))},
            {"optimizer", 0.15}, {"checkpoint", i % 20 == 0 ? 0.9 : 0.0},
            {"steps", 10},       {"rows", 2560}};
}

Config report_of(int i, int reports) {
    const double progress = static_cast<double>(i) / reports;
    const double noise = std::sin(i * 12.9898) * std::cos(i * 78.233);
    const bool resumed = progress > 0.6;
    const bool diverged = progress > 0.5 && progress < 0.55;
    const double loss = i == reports / 3 + 1 ? 9.5 : 2.3 * std::exp(-4 * progress) + 0.1;
    Config report{
        {"loss", loss + 0.02 * noise},
        {"grad_norm", i == reports / 5 ? boost::json::value("inf")
                      : diverged       ? boost::json::value(nullptr)
                                       : boost::json::value(std::exp(noise))},
        {"<script>document.title = 'broken'</script>", i % 7},
        {"phase", "train"},
        {"time", time_of(i)},
        {"training_iteration", i},
        {"time_total_s", 1.3 * i},
        {"time_since_restore", 1.3 * (resumed ? i - 0.6 * reports : i)},
        {"iterations_since_restore", resumed ? i - 6 * reports / 10 : i},
        {"date", "2026-01-02_03-04-05"},
        {"hostname", resumed ? "node-2" : "node-1"},
        {"pid", resumed ? 5678 : 1234},
        {"config",
         Config{{"lr", resumed ? 0.01 : 0.025}, {"optimizer", "adamw"}, {"betas", {0.9, 0.999}}}}};
    if (i % 5 == 0 || i == 1) {
        report["val"] = Config{{"loss", 1.1 * loss}, {"accuracy", 1 - std::exp(-5 * progress)}};
    }
    return report;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const int reports = std::stoi(argv[1]);
    track::RunSummary run;
    run.name = "a run of " + std::to_string(reports) + " reports";
    run.location = "/results/a_run";
    run.status = "failed";
    run.error_code = "RT-X1";
    run.error = "the training function failed:\nrank 1: out of memory in step 12";
    const track::RunFacts facts{.ranks = 4,
                                .hosts = 2,
                                .threads = 2,
                                .device = "cpu",
                                .libraries = {{"libtorch", "2.9.0"}}};
    run.facts = to_json(facts, {{{"", "Net", 0, 1'234'567, 1'234'567, 4'938'268},
                                 {"layer", "Linear", 1, 1'000, 1'000, 4'000}}});
    for (int i = 1; i <= reports; ++i) {
        Config report = report_of(i, reports);
        run.add(report);
        if (i > 0.6 * reports && i < 0.7 * reports) {
            report["loss"] = report.at("loss").to_number<double>() * 1.3;
            run.add_superseded(report);
        }
        if (i % (reports / 8 + 1) == 0) {
            run.checkpoints.push_back({"checkpoint_" + std::to_string(i),
                                       i,
                                       {{"loss", report.at("loss")}},
                                       i > 0.8 * reports});
        }
        run.last = std::move(report);
    }
    std::ofstream(argv[2]) << report_page(run);
    return 0;
}
