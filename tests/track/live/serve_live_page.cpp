// SPDX-License-Identifier: Apache-2.0
// serve_live_page <run directory> <port>: the live page of a run that does what standard input
// says, line by line: "begin <reports>" takes it up behind so many, "report" makes one, "end" ends
// it. Says "done" behind each.
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/track/live/live_page.hpp>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>

#include <unistd.h>

int main(int argc, char** argv) {
    using namespace rtrain;
    if (argc != 3) {
        return 2;
    }
    const std::filesystem::path directory = argv[1];
    track::RunLog log(directory, {{"lr", 0.5}});
    track::LivePage page(std::stoi(argv[2]), {});
    int begun = 0;
    for (std::string command; std::cin >> command; std::cout << "done" << std::endl) {
        if (command == "begin") {
            std::int64_t reports = 0;
            std::cin >> reports;
            Config last;
            for (const Config& line : track::read_results(directory / "result.json", 0).reports) {
                last = track::number_of(line) == reports ? line : last;
            }
            (void)log.open(reports > 0 ? &last : nullptr, [](const Config& /*line*/) {});
            const track::Started event{.name = "a live run",
                                       .location = directory.string(),
                                       .directory = storage::locate(directory),
                                       .attempt = std::to_string(::getpid()) + "." +
                                                  std::to_string(++begun),
                                       .resumed = reports > 0,
                                       .logs = directory,
                                       .log_size = log.size(),
                                       .step = 0,
                                       .steps_size = 0,
                                       .iteration = reports,
                                       .checkpoint = "",
                                       .checkpoints = {}};
            page.started(event);
        } else if (command == "report") {
            log.begin_report();
            const Config line =
                log.complete({{"loss", 1.0 / static_cast<double>(log.iteration() + 1)},
                              {"<script>document.title = 'broken'</script>", 1},
                              {"attempt", begun}},
                             std::nullopt);
            log.append(line);
            page.reported({line, false, log.size()});
        } else if (command == "end") {
            page.ended({});
        }
    }
}
