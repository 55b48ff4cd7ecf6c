// SPDX-License-Identifier: Apache-2.0
/// @file
/// The page that shows a run: one HTML file without external resources. Its script draws the
/// curves; everything else is readable without it.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/lines/reported_image.hpp>
#include <rtrain/track/page/curves.hpp>
#include <rtrain/track/page/html.hpp>
#include <rtrain/track/page/page_assets.hpp>
#include <rtrain/track/page/report_script.hpp>
#include <rtrain/track/page/run_summary.hpp>
#include <rtrain/track/page/time_shares.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

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
                     : "<p class=\"soft\">" + std::to_string(rows) + " more are omitted.</p>\n";
}
[[nodiscard]] inline std::string column(const char* title, bool is_number = false) {
    return std::string("<th scope=\"col\"") + (is_number ? " class=\"number\">" : ">") + title +
           "</th>";
}

/// The key facts, at the top.
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

/// The last report, with the extremes of its numbers.
[[nodiscard]] inline std::string last_report(const RunSummary& run) {
    constexpr std::size_t most_image_bytes = std::size_t{1} << 20; // per page
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

using Settings = std::unordered_map<std::string, std::string>; ///< as HTML, by name

[[nodiscard]] inline Settings settings_of(const Config& config) {
    Settings settings;
    visit_settings(config, [&](const std::string& name, const boost::json::value& value) {
        settings.emplace(name, of(value));
    });
    return settings;
}

/// Configurations of earlier starts, oldest first, each with the last iteration that had it.
using Earlier = std::vector<std::pair<std::int64_t, Settings>>;

[[nodiscard]] inline Earlier earlier_than(const Config& newest, const RunSummary& run) {
    Earlier earlier;
    const auto& configs = run.configs();
    for (std::size_t i = 0; i < configs.size(); ++i) {
        const bool is_last = i + 1 == configs.size();
        if (!is_last || configs[i].second != newest) {
            earlier.emplace_back(is_last ? number_of(run.last) : configs[i + 1].first - 1,
                                 settings_of(configs[i].second));
        }
    }
    return earlier;
}

/// "0.1 up to iteration 12" if an earlier start had a different value; else "".
[[nodiscard]] inline std::string value_before(const Earlier& earlier, const std::string& name,
                                              const std::string& now) {
    for (auto start = earlier.rbegin(); start != earlier.rend(); ++start) {
        const auto found = start->second.find(name);
        const std::string then = found == start->second.end() ? "not set" : found->second;
        if (then != now) {
            return then + " up to iteration " + std::to_string(start->first);
        }
    }
    return "";
}

/// The newest start's configuration, with different values of earlier starts.
[[nodiscard]] inline std::string configuration(const RunSummary& run) {
    const auto* const reported = run.last.if_contains("config");
    const Config* const config = !run.config.empty()   ? &run.config
                                 : reported != nullptr ? reported->if_object()
                                                       : nullptr;
    if (config == nullptr) {
        return "";
    }
    const Earlier earlier = earlier_than(*config, run);
    std::string rows;
    std::size_t count = 0;
    bool has_changed = false;
    visit_settings(*config, [&](const std::string& name, const boost::json::value& value) {
        if (++count <= RunSummary::most_rows) {
            const std::string now = of(value);
            const std::string before = value_before(earlier, name, now);
            has_changed = has_changed || !before.empty();
            rows += row(escaped(name), cell(now) + (earlier.empty() ? "" : cell(before)));
        }
    });
    return rows.empty()
               ? ""
               : section("Configuration",
                         table(has_changed ? column("") + column("newest start") + column("before")
                                           : "",
                               rows) +
                             left_out(count - std::min(count, RunSummary::most_rows)));
}

/// Ranks, hosts and versions of the newest start.
[[nodiscard]] inline std::string environment(const RunSummary& run) {
    const Config& facts = run.facts;
    std::string rows;
    const auto add = [&](const char* name, const std::string& text) {
        rows += text.empty() ? "" : row(escaped(name), cell(text));
    };
    const auto counted = [&](const char* field) {
        return number(RunSummary::number_in(facts, field));
    };
    if (facts.contains("ranks")) {
        add("ranks", counted("ranks") + ", " + counted("threads") + " threads each, " +
                         escaped(RunSummary::text_of(facts, "device")));
        add("hosts",
            counted("hosts") + ", rank 0 on " + escaped(RunSummary::text_of(facts, "host")));
    }
    add("rtrain", escaped(RunSummary::text_of(facts, "rtrain")));
    if (const auto* const libraries = facts.if_contains("libraries");
        libraries != nullptr && libraries->is_object()) {
        for (const auto& item : libraries->get_object()) {
            rows += row(escaped(item.key()), cell(of(item.value())));
        }
    }
    return rows.empty() ? "" : section("Environment", table("", rows));
}

/// The models that the newest start has prepared.
[[nodiscard]] inline std::string models(const RunSummary& run) {
    const auto* const all = run.facts.if_contains("models");
    std::string text;
    for (const auto& model :
         all != nullptr && all->is_array() ? all->get_array() : boost::json::array()) {
        const auto* const object = model.if_object();
        const auto* const parts = object != nullptr ? object->if_contains("parts") : nullptr;
        if (parts == nullptr || !parts->is_array()) {
            continue;
        }
        std::string rows;
        for (const auto& item : parts->get_array()) {
            if (const auto* const part = item.if_object()) {
                const auto whole = [&](const char* field) {
                    return static_cast<std::int64_t>(RunSummary::number_in(*part, field));
                };
                const auto depth = static_cast<int>(std::clamp<std::int64_t>(whole("depth"), 0, 9));
                const std::string name = RunSummary::text_of(*part, "name");
                rows += row(
                    "<span style=\"padding-left: " + std::to_string(12 * depth) + "px\">" +
                        escaped(depth == 0 && name.empty() ? "all" : name) + "</span>",
                    cell(escaped(RunSummary::text_of(*part, "type"))) +
                        number_cell(console::grouped(whole("parameters"))) +
                        number_cell(console::grouped(whole("trainable"))) +
                        number_cell(console::scaled(RunSummary::number_in(*part, "bytes"), "B")));
            }
        }
        const auto modules = static_cast<std::size_t>(RunSummary::number_in(*object, "modules"));
        text += table(column("part") + column("type") + column("parameters", true) +
                          column("trainable", true) + column("size", true),
                      rows) +
                left_out(modules - std::min(modules, parts->get_array().size()));
    }
    return text.empty() ? "" : section("Models", text);
}

[[nodiscard]] inline std::string time(const RunSummary& run) {
    const double seconds = run.time().total_seconds();
    if (seconds <= 0) {
        return "";
    }
    std::string bar;
    std::string rows;
    bool lacks_part = false;
    for (std::size_t i = 0; i < step_part_names.size(); ++i) {
        const std::string part(step_part_names[i]);
        const double spent = run.time().total()[i];
        const std::string share = rtrain::detail::print("%.1f", 100 * spent / seconds);
        bar += "<div class=\"" + part + "\" style=\"width: " + share + "%\"></div>";
        const bool is_unseen = spent == 0 && (part == "forward" || part == "backward");
        lacks_part = lacks_part || is_unseen;
        rows += row("<span class=\"swatch " + part + "\"></span>" +
                        (part == "optimizer" ? "optimizer and rest" : part),
                    number_cell(is_unseen ? "not measured" : duration(spent)) +
                        number_cell(is_unseen ? "" : share + " %"));
    }
    const std::string note =
        lacks_part ? "<p class=\"soft\">The time of a part that was not measured is counted in "
                     "a different part. Forward and backward are measured if a model is called "
                     "through the handle "
                     "that worker.prepare() returned, and returns tensors.</p>\n"
                   : "";
    return section("Time",
                   "<div class=\"card\" id=\"time\"><div class=\"bar\" aria-hidden=\"true\">" +
                       bar + "</div>\n" + table("", rows) + note + "</div>\n");
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

/// The place of the charts, which the script draws.
[[nodiscard]] inline std::string curves(const RunSummary& run) {
    return section("Metrics", "<div class=\"tools\" id=\"tools\"></div>\n"
                              "<noscript><p>Curves need JavaScript; the last report is below.</p>"
                              "</noscript>\n<div class=\"charts\" id=\"charts\"></div>\n" +
                                  left_out(run.curves().left_out()));
}

} // namespace html

/// The JSON that the script draws.
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
    return "{\"curves\":" + to_json(run.curves()) + ",\n\"rates\":" + to_json(run.rates()) +
           ",\n\"axes\":" + to_json(run.axes()) + ",\n\"superseded\":" + to_json(run.superseded()) +
           ",\n\"restarts\":[" + restarts + "],\n\"checkpoints\":[" + checkpoints +
           "],\n\"time\":" + to_json(run.time()) + "}";
}

/// The whole page. `is_live`: served during the run; subscribes to the server's events.
[[nodiscard]] inline std::string report_page(const RunSummary& run, bool is_live = false) {
    const bool has_curves = !run.curves().all().empty() || !run.rates().all().empty();
    return html::filled(
        report_html,
        {{"name", html::escaped(run.name, 300)},
         {"location", html::escaped(run.location)},
         {"connections", is_live ? "; connect-src 'self'" : ""},
         {"style", page_style},
         {"facts", html::facts(run) + html::failure(run)},
         {"curves", has_curves ? html::curves(run) : ""},
         {"time", html::time(run)},
         {"values", html::last_report(run) + html::configuration(run)},
         {"tables",
          html::models(run) + html::checkpoints(run) + html::starts(run) + html::environment(run)},
         {"version", RTRAIN_VERSION},
         {"data", html::script_data(report_data(run))},
         {"script", is_live ? std::string(report_script) + "\n" + live_script : report_script}});
}

} // namespace rtrain::track
