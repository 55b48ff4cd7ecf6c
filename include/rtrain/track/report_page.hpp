// SPDX-License-Identifier: Apache-2.0
/// @file
/// The page that shows a run: one file of HTML that asks nobody for anything. Curves are drawn by
/// its script; all else can be read without.
#pragma once

#include <rtrain/base/c_locale.hpp>
#include <rtrain/track/curves.hpp>
#include <rtrain/track/html.hpp>
#include <rtrain/track/live_script.hpp>
#include <rtrain/track/metrics.hpp>
#include <rtrain/track/report_assets.hpp>
#include <rtrain/track/reported_image.hpp>
#include <rtrain/track/run_summary.hpp>
#include <rtrain/track/time_shares.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::track {

namespace html {

[[nodiscard]] inline std::string table(const std::string& head, const std::string& rows) {
    return "<div class=\"wide\"><table>" + (head.empty() ? "" : "<thead><tr>" + head) +
           (head.empty() ? "" : "</tr></thead>") + "\n<tbody>" + rows + "</tbody></table></div>\n";
}
[[nodiscard]] inline std::string section(const std::string& title, const std::string& content) {
    return "<section><h2>" + title + "</h2>\n" + content + "</section>\n";
}
[[nodiscard]] inline std::string left_out(std::size_t rows) {
    return rows == 0 ? ""
                     : "<p class=\"soft\">" + std::to_string(rows) + " more are left out.</p>\n";
}
[[nodiscard]] inline std::string column(const char* title, bool is_number = false) {
    return std::string("<th scope=\"col\"") + (is_number ? " class=\"number\">" : ">") + title +
           "</th>";
}

/// What matters most, at the top.
[[nodiscard]] inline std::string facts(const RunSummary& run) {
    std::string list;
    const auto add = [&list](const char* name, const std::string& value) {
        list += std::string("<div><dt>") + name + "</dt><dd>" + value + "</dd></div>\n";
    };
    if (!run.status.empty()) {
        add("Status", escaped(run.status));
    }
    add("Reports", std::to_string(run.reports()));
    if (!run.last.empty()) {
        add("Duration", duration(RunSummary::number_in(run.last, RunLog::total_time_field)));
        add("Last report", escaped(RunSummary::text_of(run.last, "date")));
    }
    if (const double seconds = run.time().total_seconds(); run.time().rows() > 0 && seconds > 0) {
        add("Rows per second", number(std::round(run.time().rows() / seconds)));
    }
    if (!run.checkpoints.empty()) {
        add("Checkpoints", std::to_string(run.checkpoints.size()));
    }
    if (run.starts().size() > 1) {
        add("Starts", std::to_string(run.starts().size()));
    }
    return "<dl class=\"facts\">\n" + list + "</dl>\n";
}

[[nodiscard]] inline std::string failure(const RunSummary& run) {
    constexpr std::size_t longest_error = 20000;
    return run.error.empty()
               ? ""
               : "<section class=\"failure\"><h2>The run failed" +
                     (run.error_code.empty() ? "" : ": " + escaped(run.error_code)) + "</h2><pre>" +
                     escaped(run.error, longest_error) + "</pre></section>\n";
}

/// What was reported last, and the extremes of what are numbers.
[[nodiscard]] inline std::string last_report(const RunSummary& run) {
    constexpr std::size_t most_image_bytes = std::size_t{1} << 20; // of a page that is to be sent
    std::string rows;
    std::size_t count = 0;
    std::size_t image_bytes = 0;
    const auto extreme = [](const std::optional<Curve::Point>& point) {
        return number_cell(point ? number(point->value) : "") +
               number_cell(point ? std::to_string(point->iteration) : "");
    };
    const auto visit = [&](const std::string& name, const boost::json::value& value) {
        if (++count > RunSummary::most_rows) {
            return;
        }
        const Curve* const curve = run.curves().find(name);
        image_bytes += is_image(value) ? value.get_string().size() : 0;
        const std::string last = curve != nullptr && value.is_null() ? "NaN"
                                 : is_image(value) && image_bytes <= most_image_bytes
                                     ? image(name, value)
                                     : of(value);
        rows += row(escaped(name), cell(last, curve != nullptr ? "number" : "") +
                                       extreme(curve != nullptr ? curve->lowest() : std::nullopt) +
                                       extreme(curve != nullptr ? curve->highest() : std::nullopt));
    };
    visit_leaves_if(run.last, IsMetric{run.last}, visit);
    if (rows.empty()) {
        return section("Last report", "<p>Nothing was reported.</p>\n");
    }
    const std::string head = column("metric") + column("last", true) + column("lowest", true) +
                             column("at", true) + column("highest", true) + column("at", true);
    return section("Last report, iteration " + std::to_string(number_of(run.last)),
                   table(head, rows) + left_out(count - std::min(count, RunSummary::most_rows)));
}

[[nodiscard]] inline std::string configuration(const RunSummary& run) {
    const auto* const config = run.last.if_contains("config");
    std::string rows;
    std::size_t count = 0;
    if (config != nullptr && config->is_object()) {
        const auto all = [](std::string_view /*name*/) { return true; };
        visit_leaves_if(config->get_object(), all,
                        [&](const std::string& name, const boost::json::value& value) {
                            if (++count <= RunSummary::most_rows) {
                                rows += row(escaped(name), cell(of(value)));
                            }
                        });
    }
    return rows.empty() ? ""
                        : section("Configuration",
                                  table("", rows) +
                                      left_out(count - std::min(count, RunSummary::most_rows)));
}

[[nodiscard]] inline std::string time(const RunSummary& run) {
    const double seconds = run.time().total_seconds();
    if (seconds <= 0) {
        return "";
    }
    std::string bar;
    std::string rows;
    for (std::size_t i = 0; i < step_part_names.size(); ++i) {
        const std::string part(step_part_names[i]);
        const double spent = run.time().total()[i];
        const std::string share = rtrain::detail::print("%.1f", 100 * spent / seconds);
        bar += "<div class=\"" + part + "\" style=\"width: " + share + "%\"></div>";
        rows += row("<span class=\"swatch " + part + "\"></span>" +
                        (part == "optimizer" ? "optimizer and rest" : part),
                    number_cell(duration(spent)) + number_cell(share + " %"));
    }
    return section("Time",
                   "<div class=\"card\" id=\"time\"><div class=\"bar\" aria-hidden=\"true\">" +
                       bar + "</div>\n" + table("", rows) + "</div>\n");
}

[[nodiscard]] inline std::string checkpoints(const RunSummary& run) {
    std::string rows;
    std::size_t count = 0;
    for (auto item = run.checkpoints.rbegin(); item != run.checkpoints.rend(); ++item) {
        if (++count > RunSummary::most_rows && !item->is_best) {
            continue;
        }
        constexpr std::size_t most_metrics = 6;
        std::string metrics;
        std::size_t shown = 0;
        const auto visit = [&](const std::string& name, const boost::json::value& value) {
            if (!value.is_structured() && ++shown <= most_metrics) {
                metrics += (metrics.empty() ? "" : ", ") + escaped(name) + " " + of(value);
            }
        };
        visit_leaves_if(item->metrics, IsMetric{item->metrics}, visit);
        rows +=
            row(escaped(item->name), number_cell(std::to_string(item->iteration)) +
                                         cell(item->is_best ? "best" : "", "best") + cell(metrics));
    }
    return rows.empty() ? ""
                        : section("Checkpoints",
                                  table(column("kept") + column("iteration", true) + column("") +
                                            column("reported with"),
                                        rows) +
                                      left_out(count - std::min(count, RunSummary::most_rows)));
}

[[nodiscard]] inline std::string starts(const RunSummary& run) {
    std::string rows;
    const auto add = [&rows](const RunStart& start, const char* remark) {
        rows += row(
            escaped(start.date),
            cell(escaped(start.host)) + number_cell(std::to_string(start.process)) +
                number_cell(std::to_string(start.first) + "&ndash;" + std::to_string(start.last)) +
                number_cell(duration(start.seconds)) + cell(remark));
    };
    for (const RunStart& start : run.starts()) {
        add(start, "");
    }
    for (const RunStart& start : run.superseded_starts()) {
        add(start, "superseded: made again by a later start");
    }
    return rows.empty()
               ? ""
               : section("Starts", table(column("first report") + column("host of rank 0") +
                                             column("process", true) + column("iterations", true) +
                                             column("time", true) + column(""),
                                         rows));
}

} // namespace html

/// What the script draws.
[[nodiscard]] inline std::string report_data(const RunSummary& run) {
    std::string restarts;
    for (std::size_t i = 1; i < run.starts().size(); ++i) {
        restarts += (i > 1 ? "," : "") + std::to_string(run.starts()[i].first);
    }
    std::string checkpoints;
    const std::size_t count = run.checkpoints.size();
    for (std::size_t i = 0; i < count; ++i) {
        const KeptCheckpoint& item = run.checkpoints[i];
        if (i + RunSummary::most_rows >= count || item.is_best) {
            checkpoints += (checkpoints.empty() ? "{\"iteration\":" : ",{\"iteration\":") +
                           std::to_string(item.iteration) +
                           ",\"best\":" + (item.is_best ? "true}" : "false}");
        }
    }
    return "{\"curves\":" + to_json(run.curves()) +
           ",\n\"superseded\":" + to_json(run.superseded()) + ",\n\"restarts\":[" + restarts +
           "],\n\"checkpoints\":[" + checkpoints + "],\n\"time\":" + to_json(run.time()) + "}";
}

/// The whole page. `is_live`: it is served while the run goes on, and asks its server for news.
[[nodiscard]] inline std::string report_page(const RunSummary& run, bool is_live = false) {
    const std::string name = html::escaped(run.name, 300);
    std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                       "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
    page += is_live ? "; connect-src 'self'" : "";
    page += "\">\n<title>" + name + "</title>\n<style>";
    page += report_style;
    page += "</style>\n</head>\n<body>\n<main>\n<header><h1>" + name + "</h1>\n<p class=\"soft\">" +
            html::escaped(run.location) + "</p></header>\n" + html::facts(run) + html::failure(run);
    if (!run.curves().all().empty()) {
        page += html::section("Metrics",
                              "<div class=\"tools\" id=\"tools\"></div>\n"
                              "<noscript><p>Curves need JavaScript; the last report is below.</p>"
                              "</noscript>\n<div class=\"charts\" id=\"charts\"></div>\n" +
                                  html::left_out(run.curves().left_out()));
    }
    page += html::time(run) + "<div class=\"two\">" + html::last_report(run) +
            html::configuration(run) + "</div>\n" + html::checkpoints(run) + html::starts(run) +
            "<footer>Written by rtrain " RTRAIN_VERSION ".</footer>\n</main>\n"
            "<script type=\"application/json\" id=\"data\">" +
            html::script_data(report_data(run)) + "</script>\n<script>";
    page += report_script;
    page += is_live ? live_script : "";
    return page + "</script>\n</body>\n</html>\n";
}

} // namespace rtrain::track
