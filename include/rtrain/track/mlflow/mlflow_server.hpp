// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlowServer: the subset of MLflow's REST API 2.0
/// (https://mlflow.org/docs/latest/api_reference/rest-api.html) that a tracker needs. Included by
/// definitions only.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/base64.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/track/http/http_exchange.hpp>
#include <rtrain/track/http/url.hpp>
#include <rtrain/track/mlflow/mlflow_artifacts.hpp>
#include <rtrain/track/mlflow/mlflow_entries.hpp>

#include <boost/json/array.hpp>
#include <boost/url/url.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace rtrain::track {

/// An error answer of the server.
class MlFlowRefusal : public Error {
public:
    MlFlowRefusal(const std::string& message, std::string reason, unsigned status)
        : Error("RT-V62", message), reason_(std::move(reason)), status_(status) {}
    /// MLflow's error code, such as "RESOURCE_DOES_NOT_EXIST"; "" for none.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    /// True if the server may have refused part of the content, rather than the client or the time.
    /// MLflow answers 500 if its store cannot write one metric.
    [[nodiscard]] bool may_be_of_content() const noexcept {
        return status_ == 400 || status_ == 413 || status_ == 500;
    }

private:
    std::string reason_;
    unsigned status_;
};

/// The object in `field`; empty if missing.
[[nodiscard]] inline Config object_in(const Config& object, const char* field) {
    const auto* const value = object.if_contains(field);
    return value != nullptr && value->is_object() ? value->get_object() : Config{};
}

class MlFlowServer {
public:
    using Clock = std::chrono::steady_clock;

    static constexpr const char* does_not_exist = "RESOURCE_DOES_NOT_EXIST";
    static constexpr const char* already_exists = "RESOURCE_ALREADY_EXISTS";

    /// Uses MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, if the
    /// caller has named the server: the note in a directory may come from anyone. `https` sends the
    /// requests to an https:// server. Throws ConfigError [RT-V60], or [RT-V66] if it is empty.
    MlFlowServer(Url server, const HttpSender& https, bool is_named)
        : server_(std::move(server)), send_(server_.encrypted ? https : http_exchange),
          authorization_(authorization()), withholds_(!is_named && !authorization_.empty()) {
        if (withholds_) {
            authorization_.clear();
        }
        if (!send_) {
            throw ConfigError(
                "RT-V66",
                server_.text() +
                    " requires rtrain's component https; in CMake, call "
                    "find_package(rtrain COMPONENTS https) and link rtrain::https; in the program, "
                    "include <rtrain/track/https.hpp> and pass rtrain::track::https() to "
                    "MlFlowOptions or track::sync");
        }
    }

    [[nodiscard]] const Url& url() const noexcept { return server_; }
    [[nodiscard]] bool sends_credentials() const noexcept { return !authorization_.empty(); }
    /// True if the environment has credentials that are not for this server.
    [[nodiscard]] bool withholds_credentials() const noexcept { return withholds_; }

    /// The ID of the experiment, which is created if missing.
    [[nodiscard]] std::string experiment(const std::string& name) {
        if (const auto id = find_experiment(name)) {
            return *id;
        }
        try {
            return text(post("experiments/create", {{"name", name}}), "experiment_id");
        } catch (const MlFlowRefusal& refusal) { // another client has just created it
            if (refusal.reason() != already_exists) {
                throw;
            }
        }
        return find_experiment(name).value_or("");
    }

    /// The run that has the tag with this value.
    [[nodiscard]] std::optional<std::string>
    find_run(const std::string& experiment, const std::string& tag, const std::string& value) {
        const Config found =
            post("runs/search", {{"experiment_ids", boost::json::array{experiment}},
                                 {"filter", "tags.`" + tag + "` = '" + value + "'"},
                                 {"max_results", 1}});
        const auto* const runs = found.if_contains("runs");
        if (runs == nullptr || !runs->is_array() || runs->get_array().empty()) {
            return std::nullopt;
        }
        const auto* const run = runs->get_array()[0].if_object();
        return id_of(run != nullptr ? *run : Config{});
    }

    [[nodiscard]] std::string create_run(const Config& request) {
        const Config created = post("runs/create", request);
        return id_of(object_in(created, "run"));
    }

    /// {"info": {...}, "data": {...}}; empty if the run does not exist or is deleted.
    [[nodiscard]] std::optional<Config> run(const std::string& id) {
        try {
            return object_in(get("runs/get", {{"run_id", id}}), "run");
        } catch (const MlFlowRefusal& refusal) {
            if (refusal.reason() != does_not_exist) {
                throw;
            }
        }
        return std::nullopt;
    }

    /// The points of a metric that the server has; empty if unknown.
    [[nodiscard]] std::set<std::pair<std::int64_t, std::int64_t>>
    points(const std::string& id, const std::string& metric) {
        std::set<std::pair<std::int64_t, std::int64_t>> points; // step and timestamp
        try {
            const Config found =
                get("metrics/get-history", {{"run_id", id}, {"metric_key", metric}});
            const auto* const all = found.if_contains("metrics");
            for (const auto& point : all != nullptr ? all->as_array() : boost::json::array()) {
                points.emplace(point.at("step").to_number<std::int64_t>(),
                               point.at("timestamp").to_number<std::int64_t>());
            }
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception&) { // the answer is too long, or an error: all points are
                                          // sent again
        }
        return points;
    }

    /// Marks the run as deleted. Ignores one that does not exist.
    void delete_run(const std::string& id) {
        try {
            (void)post("runs/delete", {{"run_id", id}});
        } catch (const MlFlowRefusal& refusal) {
            if (refusal.reason() != does_not_exist) {
                throw;
            }
        }
    }

    /// The server's upload path for the files of a run; none if they are stored elsewhere.
    [[nodiscard]] std::optional<std::string> artifact_path(const std::string& id) {
        const Config info = object_in(run(id).value_or(Config{}), "info");
        return mlflow::proxied_path(text_or_none(info, "artifact_uri"), server_.authority());
    }

    /// Throws like post(), and [RT-V69].
    void put(const std::string& path, const std::filesystem::path& file) {
        boost::urls::url target("/api/2.0/mlflow-artifacts/artifacts");
        for (const auto& part : std::filesystem::path(path)) {
            target.segments().push_back(part.string());
        }
        (void)request(
            {.method = HttpRequest::Method::put, .target = target.buffer(), .file = file});
    }

    /// Throws MlFlowRefusal [RT-V62], or Error [RT-V61], [RT-V63] or [RT-V64].
    Config post(const char* what, const Config& body) { return post(what, json::serialize(body)); }
    Config post(const char* what, std::string body) {
        return request({.method = HttpRequest::Method::post,
                        .target = std::string(api) + what,
                        .body = std::move(body)});
    }

private:
    static constexpr const char* api = "/api/2.0/mlflow/";
    static constexpr const char* withheld =
        "; credentials from the environment go only to a server that you name; set "
        "MLFLOW_TRACKING_URI, or pass the URI to sync";
    static constexpr std::chrono::seconds longest_wait{60};

    [[nodiscard]] static std::string authorization() {
        const auto variable = [](const char* name) {
            const char* const value = std::getenv(name);
            return std::string(value != nullptr ? value : "");
        };
        const std::string user = variable("MLFLOW_TRACKING_USERNAME");
        const std::string password = variable("MLFLOW_TRACKING_PASSWORD");
        if (!user.empty() && !password.empty()) {
            return "Basic " + rtrain::detail::to_base64(user + ':' + password);
        }
        const std::string token = variable("MLFLOW_TRACKING_TOKEN");
        const auto is_graphic = [](char letter) { return letter > ' ' && letter < 0x7f; };
        if (!std::ranges::all_of(token, is_graphic)) {
            throw ConfigError("RT-V60", "MLFLOW_TRACKING_TOKEN has a space, a line break or a "
                                        "non-ASCII character; set it to the token only");
        }
        return token.empty() ? "" : "Bearer " + token;
    }

    [[nodiscard]] std::optional<std::string> find_experiment(const std::string& name) {
        try {
            const Config found = get("experiments/get-by-name", {{"experiment_name", name}});
            return text(object_in(found, "experiment"), "experiment_id");
        } catch (const MlFlowRefusal& refusal) {
            if (refusal.reason() != does_not_exist) {
                throw;
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] Config get(const char* what,
                             std::initializer_list<boost::urls::param_view> parameters) {
        boost::urls::url target(std::string(api) + what);
        for (const auto& parameter : parameters) {
            target.params().append(parameter);
        }
        return request({.target = target.buffer()});
    }

    [[nodiscard]] Config request(HttpRequest request) {
        if (const auto now = Clock::now(); now < not_before_) {
            throw Error("RT-V63", server_.text() + " has asked clients to retry later");
        }
        request.authorization = authorization_;
        const std::string target = request.target.substr(0, request.target.find('?'));
        const HttpAnswer answer = send_(server_, request);
        const bool wants_none = request.method == HttpRequest::Method::put && answer.body.empty();
        const auto body = wants_none ? Config{} : parsed(answer.body);
        if (answer.status == 200 && body) {
            return *body;
        }
        if (answer.status == 429 || answer.status == 503) {
            wait_as_told(answer);
        }
        if (answer.status == 200) {
            throw Error("RT-V64", rtrain::detail::concat(
                                      server_.text(), " answers ", target,
                                      " with something other than a JSON object; check that it is "
                                      "an MLflow server"));
        }
        const bool wants_credentials = answer.status == 401 || answer.status == 403;
        throw MlFlowRefusal(
            rtrain::detail::concat(
                server_.text(), " answers ", target, " with status ", answer.status,
                body ? ": " + mlflow::printable(text_or_none(*body, "message")) : "",
                wants_credentials && withholds_ ? withheld : ""),
            body ? text_or_none(*body, "error_code") : "", answer.status);
    }

    void wait_as_told(const HttpAnswer& answer) {
        const std::string& told = answer.retry_after;
        std::int64_t seconds = 0; // dates are ignored
        std::from_chars(told.data(), told.data() + told.size(), seconds);
        seconds = std::clamp<std::int64_t>(seconds, 0, longest_wait.count());
        not_before_ = Clock::now() + std::chrono::seconds(seconds);
    }

    [[nodiscard]] static std::optional<Config> parsed(const std::string& body) {
        try {
            return json::parse(body).as_object();
        } catch (const std::bad_alloc&) { // not the text's fault
            throw;
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    [[nodiscard]] static std::string text_or_none(const Config& object, const char* field) {
        const auto* const value = object.if_contains(field);
        return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
    }

    [[nodiscard]] std::string text(const Config& object, const char* field) const {
        std::string found = text_or_none(object, field);
        if (found.empty()) {
            throw Error("RT-V64",
                        rtrain::detail::concat(server_.text(), " has answered without \"", field,
                                               "\"; check that it is an MLflow server"));
        }
        return found;
    }

    [[nodiscard]] std::string id_of(const Config& run) const {
        return text(object_in(run, "info"), "run_id");
    }

    Url server_;
    HttpSender send_;
    std::string authorization_;
    bool withholds_;
    Clock::time_point not_before_{};
};

} // namespace rtrain::track
