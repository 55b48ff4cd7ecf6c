// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlowNote: the file in a run's directory that records its MLflow run, and the server's
/// progress. It is written durably before each request, so that nothing is duplicated if the
/// process is killed. It holds no credentials.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track {

struct MlFlowNote {
    static constexpr std::string_view begin = R"({"tracker":"mlflow",)";

    std::string uri{};
    std::string experiment{};
    std::string run_name{}; ///< "": the name of the run's directory
    std::map<std::string, std::string> tags{};
    std::string id{};                            ///< unique ID, stored as a tag of the MLflow run
    bool is_asked_for = false;                   ///< a run with that tag may exist
    std::string run_id{};                        ///< "": not known to exist
    bool has_parameters = false;                 ///< the MLflow run has them
    std::string status{};                        ///< of the MLflow run
    Position sent{};                             ///< confirmed by the server
    Position on_its_way{};                       ///< possibly stored on the server
    std::vector<std::string> old{};              ///< MLflow runs that this one replaces
    bool steps = true;                           ///< true: steps are also sent
    std::vector<std::string> artifacts{};        ///< patterns
    std::map<std::string, std::string> stored{}; ///< uploaded artifacts, each with its mark
    std::set<std::string> refused{};             ///< entries that the server refused

    /// None if the file does not exist. Throws Error [RT-V65].
    [[nodiscard]] static std::optional<MlFlowNote> read(const std::filesystem::path& file);

    /// Durable on return.
    void write(const std::filesystem::path& file) const {
        storage::replace_file(
            file,
            json::serialize({{"tracker", "mlflow"},
                             {"uri", uri},
                             {"experiment", experiment},
                             {"run_name", run_name},
                             {"tags", object_of(tags)},
                             {"id", id},
                             {"is_asked_for", is_asked_for},
                             {"run_id", run_id},
                             {"has_parameters", has_parameters},
                             {"status", status},
                             {"sent", sent.iteration},
                             {"on_its_way", on_its_way.iteration},
                             {"steps_sent", sent.step},
                             {"steps_on_their_way", on_its_way.step},
                             {"old", boost::json::array(old.begin(), old.end())},
                             {"steps", steps},
                             {"artifacts", boost::json::array(artifacts.begin(), artifacts.end())},
                             {"stored", object_of(stored)},
                             {"refused", boost::json::array(refused.begin(), refused.end())}}) +
                "\n");
    }

private:
    [[nodiscard]] static boost::json::object
    object_of(const std::map<std::string, std::string>& map) {
        boost::json::object object;
        for (const auto& [key, value] : map) {
            object[key] = value;
        }
        return object;
    }
};

inline std::optional<MlFlowNote> MlFlowNote::read(const std::filesystem::path& file) {
    if (!std::filesystem::exists(file)) {
        return std::nullopt;
    }
    const std::string text = storage::read_file(file);
    try {
        const boost::json::object noted = json::parse(text).as_object();
        const auto string = [](const boost::json::value& value) {
            return std::string(value.as_string());
        };
        MlFlowNote note{.uri = string(noted.at("uri")),
                        .experiment = string(noted.at("experiment")),
                        .run_name = string(noted.at("run_name")),
                        .id = string(noted.at("id")),
                        .is_asked_for = noted.at("is_asked_for").as_bool(),
                        .run_id = string(noted.at("run_id")),
                        .has_parameters = noted.at("has_parameters").as_bool(),
                        .status = string(noted.at("status")),
                        .sent = {noted.at("sent").as_int64(), noted.at("steps_sent").as_int64()},
                        .on_its_way = {noted.at("on_its_way").as_int64(),
                                       noted.at("steps_on_their_way").as_int64()},
                        .steps = noted.at("steps").as_bool()};
        const auto read_map = [&](const char* field, std::map<std::string, std::string>& map) {
            for (const auto& item : noted.at(field).as_object()) {
                map[item.key()] = string(item.value());
            }
        };
        const auto read_list = [&](const char* field, std::vector<std::string>& list) {
            for (const auto& item : noted.at(field).as_array()) {
                list.push_back(string(item));
            }
        };
        read_map("tags", note.tags);
        read_map("stored", note.stored);
        read_list("old", note.old);
        read_list("artifacts", note.artifacts);
        if (noted.contains("refused")) { // rtrain 0.1 did not write it
            std::vector<std::string> refused;
            read_list("refused", refused);
            note.refused.insert(refused.begin(), refused.end());
        }
        return note;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception&) {
        throw Error("RT-V65",
                    rtrain::detail::concat(file.string(),
                                           " is damaged, so the MLflow run of this run is unknown; "
                                           "remove the file to create a new MLflow run"));
    }
}

} // namespace rtrain::track
