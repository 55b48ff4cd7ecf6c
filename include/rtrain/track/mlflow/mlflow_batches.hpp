// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlowBatches: sends metrics or parameters to an MLflow server, many per request, and omits
/// those that it refuses. Included by definitions only.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/track/mlflow/mlflow_entries.hpp>
#include <rtrain/track/mlflow/mlflow_note.hpp>
#include <rtrain/track/mlflow/mlflow_server.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

class MlFlowBatches {
public:
    /// The kind of entry in the batches.
    struct Kind {
        const char* field; ///< in the request
        const char* name;  ///< of one entry, for messages
        std::size_t most;  ///< per request; MLflow's limit
    };
    static constexpr const char* refused_tag = "rtrain.refused";
    static constexpr Kind metrics{"metrics", "metric", 1000};
    static constexpr Kind parameters{"params", "parameter", 100};

    /// "metric loss", as in MlFlowNote::refused.
    [[nodiscard]] static std::string title(const Kind& kind, const std::string& name) {
        return std::string(kind.name) + ' ' + name;
    }

    static constexpr const char* id_tag = "rtrain.id"; ///< tag of the MLflow run: MlFlowNote::id

    /// Adds refused entries to `note`.
    MlFlowBatches(MlFlowServer& server, MlFlowNote& note, const Kind& kind)
        : server_(server), note_(note), kind_(kind) {}

    /// Removes from `entries` those that the server has stored, and those that it refuses. Throws
    /// like MlFlowServer::post(); the rest is for another call. `in_doubt`: the server may already
    /// have some.
    void send(std::vector<mlflow::Entry>& entries, bool in_doubt) {
        if (in_doubt) {
            remove_known(entries, entries.size());
        }
        while (!entries.empty()) {
            const std::size_t count = size_of_batch(entries);
            if (!try_send(entries, count)) {
                send_by_name(entries, count);
            }
        }
    }

private:
    using Entries = std::vector<mlflow::Entry>;

    static constexpr std::size_t most_bytes = 900'000;
    static constexpr std::size_t most_histories = 200; ///< maximum number of queries

    [[nodiscard]] static Entries::iterator behind(Entries& entries, std::size_t count) {
        return std::next(entries.begin(), static_cast<std::ptrdiff_t>(count));
    }

    [[nodiscard]] std::size_t size_of_batch(const Entries& entries) const {
        const std::size_t most = std::min(entries.size(), kind_.most);
        std::size_t bytes = entries.front().json.size();
        std::size_t count = 1;
        while (count < most && bytes + entries[count].json.size() < most_bytes) {
            bytes += entries[count++].json.size() + 1; // a comma
        }
        return count;
    }

    /// Removes those of the first `count` that the server already has: a file store would show them
    /// twice. Returns the number that remain.
    std::size_t remove_known(Entries& entries, std::size_t count) {
        std::map<std::string, std::set<std::pair<std::int64_t, std::int64_t>>> known;
        const auto has = [&](const mlflow::Entry& entry) {
            auto found = known.find(entry.name);
            if (found == known.end() && known.size() < most_histories) {
                found = known.emplace(entry.name, server_.points(note_.run_id, entry.name)).first;
            }
            return found != known.end() && found->second.contains(entry.point);
        };
        const auto left = std::remove_if(entries.begin(), behind(entries, count), has);
        const auto many = static_cast<std::size_t>(left - entries.begin());
        entries.erase(left, behind(entries, count));
        return many;
    }

    /// Sends the first `count`, and removes them. False if the server refused at least one.
    [[nodiscard]] bool try_send(Entries& entries, std::size_t count) {
        std::string body = "{\"run_id\":" + json::serialize(boost::json::value(note_.run_id)) +
                           ",\"" + kind_.field + "\":[";
        for (std::size_t i = 0; i < count; ++i) {
            body += (i > 0 ? "," : "") + entries[i].json;
        }
        try {
            (void)server_.post("runs/log-batch", body + "]}");
        } catch (const MlFlowRefusal& refusal) {
            if (!refusal.may_be_of_content()) {
                throw;
            }
            refusal_ = refusal.what();
            return false;
        }
        entries.erase(entries.begin(), behind(entries, count));
        return true;
    }

    /// Sends the first `count`, grouped by name, because servers refuse by name: a file store
    /// cannot hold "loss/val" and "loss", and parameters are immutable.
    void send_by_name(Entries& entries, std::size_t count) {
        if (kind_.field == metrics.field) { // a server may have written some of them
            count = remove_known(entries, count);
        }
        std::ranges::stable_sort(entries.begin(), behind(entries, count), {}, &mlflow::Entry::name);
        while (count > 0) {
            const auto end =
                std::find_if(entries.begin(), behind(entries, count),
                             [&](const auto& entry) { return entry.name != entries.front().name; });
            const auto same = static_cast<std::size_t>(end - entries.begin());
            if (!try_send(entries, same)) {
                send_or_leave_out(entries, same);
            }
            count -= same;
        }
    }

    void set_tag(const char* name, const std::string& value) {
        boost::json::object tag = mlflow::tag(name, value);
        tag["run_id"] = note_.run_id;
        (void)server_.post("runs/set-tag", tag);
    }

    /// Sends the first `count`, which have the same name. They are refused if the server accepts a
    /// known tag in between; otherwise the server is failing, or the run is gone.
    void send_or_leave_out(Entries& entries, std::size_t count) {
        set_tag(id_tag, note_.id);
        if (try_send(entries, count)) {
            return;
        }
        const std::string name = entries.front().name;
        auto refused = note_.refused;
        refused.insert(title(kind_, name));
        std::string list; // shown on the server
        for (const std::string& one : refused) {
            list += (list.empty() ? "" : ", ") + one;
        }
        set_tag(refused_tag, list);
        note_.refused = std::move(refused);
        std::erase_if(entries, [&](const auto& entry) { return entry.name == name; });
        console::warn("MLflow shows this run without the %s %s, which its server refused: %s",
                      kind_.name, name.c_str(), refusal_.c_str());
    }

    MlFlowServer& server_;
    MlFlowNote& note_;
    const Kind& kind_;
    std::string refusal_; ///< message of the last one
};

} // namespace rtrain::track
