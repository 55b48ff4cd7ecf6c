// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlowNote: the file in a run's directory that says which run on an MLflow server shows it, and
/// how much of it that has. It is durable before the server is asked for what it is about, so that
/// nothing is there twice wherever a process is killed. It holds no credentials.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track {

struct MlFlowNote {
    static constexpr std::string_view begin = R"({"tracker":"mlflow",)";

    std::string uri{};
    std::string experiment{};
    std::string run_name{}; ///< "": that of the run's directory
    std::map<std::string, std::string> tags{};
    std::string id{};               ///< of our own, which the run has as a tag
    bool is_asked_for = false;      ///< a run with that tag may be there
    std::string run_id{};           ///< "": it is not known to be there
    bool has_parameters = false;    ///< the run there
    std::string status{};           ///< that the run there has
    std::int64_t sent = 0;          ///< reports that the server has
    std::int64_t on_its_way = 0;    ///< reports that it may have
    std::vector<std::string> old{}; ///< runs there that this one replaces

    /// None when there is no such file. Throws Error [RT-V65].
    [[nodiscard]] static std::optional<MlFlowNote> read(const std::filesystem::path& file);

    /// Durable on return.
    void write(const std::filesystem::path& file) const {
        boost::json::object all_tags;
        for (const auto& [key, value] : tags) {
            all_tags[key] = value;
        }
        storage::replace_file(
            file, json::serialize({{"tracker", "mlflow"},
                                   {"uri", uri},
                                   {"experiment", experiment},
                                   {"run_name", run_name},
                                   {"tags", all_tags},
                                   {"id", id},
                                   {"is_asked_for", is_asked_for},
                                   {"run_id", run_id},
                                   {"has_parameters", has_parameters},
                                   {"status", status},
                                   {"sent", sent},
                                   {"on_its_way", on_its_way},
                                   {"old", boost::json::array(old.begin(), old.end())}}) +
                      "\n");
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
                        .sent = noted.at("sent").as_int64(),
                        .on_its_way = noted.at("on_its_way").as_int64()};
        for (const auto& item : noted.at("tags").as_object()) {
            note.tags[item.key()] = string(item.value());
        }
        for (const auto& run : noted.at("old").as_array()) {
            note.old.push_back(string(run));
        }
        return note;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception&) {
        throw Error("RT-V65",
                    rtrain::detail::concat(file.string(),
                                           " is damaged, so which run on the MLflow server shows "
                                           "this one is unknown; remove the file to have another"));
    }
}

} // namespace rtrain::track
