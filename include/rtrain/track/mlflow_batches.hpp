// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlowBatches: sends metrics or parameters to an MLflow server, many in a request, and goes on
/// without those that it refuses. Included by definitions only.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/track/mlflow_entries.hpp>
#include <rtrain/track/mlflow_note.hpp>
#include <rtrain/track/mlflow_server.hpp>

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
    /// What the batches are of.
    struct Kind {
        const char* field; ///< of the request
        const char* name;  ///< of one, for people
        std::size_t most;  ///< in a request; MLflow allows no more
    };
    static constexpr const char* refused_tag = "rtrain.refused";
    static constexpr Kind metrics{"metrics", "metric", 1000};
    static constexpr Kind parameters{"params", "parameter", 100};

    /// "metric loss", as `left_out` has it.
    [[nodiscard]] static std::string title(const Kind& kind, const std::string& name) {
        return std::string(kind.name) + ' ' + name;
    }

    static constexpr const char* id_tag = "rtrain.id"; ///< of the run there: MlFlowNote::id

    /// More is added to what `note` has as refused.
    MlFlowBatches(MlFlowServer& server, MlFlowNote& note, const Kind& kind)
        : server_(server), note_(note), kind_(kind) {}

    /// Removes from `entries` what the server has got, and what it does not take. Throws as
    /// MlFlowServer::post() does; what is left then is for another call. `in_doubt`: the server may
    /// have some already.
    void send(std::vector<mlflow::Entry>& entries, bool in_doubt) {
        if (in_doubt) {
            remove_known(entries, entries.size());
        }
        while (!entries.empty()) {
            const std::size_t count = size_of_batch(entries);
            if (!is_taken(entries, count)) {
                send_by_name(entries, count);
            }
        }
    }

private:
    using Entries = std::vector<mlflow::Entry>;

    static constexpr std::size_t most_bytes = 900'000;
    static constexpr std::size_t most_histories = 200; ///< that are asked for

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

    /// Removes, of the first `count`, those that the server has: with files, it would show them
    /// twice. Returns the number of those left.
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

    /// Whether the server has the first `count`, which are removed then. False: it refuses one.
    [[nodiscard]] bool is_taken(Entries& entries, std::size_t count) {
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

    /// The first `count`. What a server refuses it refuses by name: one that keeps metrics in files
    /// has no "loss/val" beside "loss", and no parameter changes.
    void send_by_name(Entries& entries, std::size_t count) {
        if (kind_.field == metrics.field) { // which a server may have written in part
            count = remove_known(entries, count);
        }
        std::ranges::stable_sort(entries.begin(), behind(entries, count), {}, &mlflow::Entry::name);
        while (count > 0) {
            const auto end =
                std::find_if(entries.begin(), behind(entries, count),
                             [&](const auto& entry) { return entry.name != entries.front().name; });
            const auto same = static_cast<std::size_t>(end - entries.begin());
            if (!is_taken(entries, same)) {
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

    /// The first `count`, which have one name. They are to blame if the server, in between, takes a
    /// tag that it has: else it is out of order, or the run is gone.
    void send_or_leave_out(Entries& entries, std::size_t count) {
        set_tag(id_tag, note_.id);
        if (is_taken(entries, count)) {
            return;
        }
        const std::string name = entries.front().name;
        auto refused = note_.refused;
        refused.insert(title(kind_, name));
        std::string list; // for people there
        for (const std::string& one : refused) {
            list += (list.empty() ? "" : ", ") + one;
        }
        set_tag(refused_tag, list);
        note_.refused = std::move(refused);
        std::erase_if(entries, [&](const auto& entry) { return entry.name == name; });
        console::warn("MLflow shows this run without the %s %s, which its server refuses: %s",
                      kind_.name, name.c_str(), refusal_.c_str());
    }

    MlFlowServer& server_;
    MlFlowNote& note_;
    const Kind& kind_;
    std::string refusal_; ///< the last one
};

} // namespace rtrain::track
