// SPDX-License-Identifier: Apache-2.0
/// @file
/// OfflineNote: a file in an offline tracker's directory. It records the run's ID in the service,
/// its start time, and the tracker's options, for later starts and for track/sync.hpp. It holds no
/// credentials.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/base/text/wall_clock.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/track/lines/option.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track {

class OfflineNote {
public:
    /// The note in `directory`, or a new one with an id of `letters` hexadecimal digits; it is not
    /// on disk before write(). Throws Error [RT-V70].
    OfflineNote(const std::filesystem::path& directory, std::string_view tracker,
                std::size_t letters)
        : file_(directory / file_name), tracker_(tracker) {
        if (!std::filesystem::exists(file_)) {
            start_s_ = static_cast<std::int64_t>(rtrain::detail::seconds_since_1970());
            std::random_device random;
            while (id_.size() < letters) {
                id_ += "0123456789abcdef"[random() % 16];
            }
            return;
        }
        const std::string text = storage::read_file(file_);
        try {
            const Config noted = json::parse(text).as_object();
            id_ = noted.at("id").as_string();
            if (id_.find_first_not_of("0123456789abcdef") != std::string::npos) {
                throw std::invalid_argument("the id is not hexadecimal, and is used in file names");
            }
            start_s_ = noted.at("start").as_int64();
            options_ = noted.at("options").as_object();
            for (const auto& tag : noted.at("tags").as_array()) {
                tags_.emplace_back(tag.as_string());
            }
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception&) {
            throw Error("RT-V70",
                        rtrain::detail::concat(
                            file_.string(),
                            " is damaged, so the id of the run is unknown; remove the file to "
                            "get a new id"));
        }
    }

    /// True if `directory` was written by `tracker`.
    [[nodiscard]] static bool is_in(const std::filesystem::path& directory,
                                    std::string_view tracker) {
        const auto file = directory / file_name;
        return std::filesystem::is_regular_file(file) &&
               storage::read_file(file).starts_with(begin_of(tracker));
    }

    [[nodiscard]] const std::string& id() const noexcept { return id_; }
    /// Seconds since 1970.
    [[nodiscard]] std::int64_t start_s() const noexcept { return start_s_; }

    /// Records an option: `given`; else the environment's `variable`; else the recorded value; else
    /// `otherwise`. Returns it, as UTF-8.
    std::string option(std::string_view name, const std::string& given, const char* variable,
                       const std::string& otherwise = "") {
        const auto* const noted = options_.if_contains(name);
        const std::string before =
            noted && noted->is_string() ? std::string(noted->get_string()) : otherwise;
        const std::string value = option_or(given, variable, before);
        std::string text = json::clean_text(value, value.size());
        options_[name] = text;
        return text;
    }

    /// Records `given`, or keeps the recorded tags if it is empty.
    std::vector<std::string> tags(const std::vector<std::string>& given) {
        if (!given.empty()) {
            tags_.clear();
            for (const std::string& tag : given) {
                tags_.push_back(json::clean_text(tag, tag.size()));
            }
        }
        return tags_;
    }

    /// Durable on return.
    void write() const {
        storage::replace_file(
            file_,
            begin_of(tracker_) +
                json::serialize(Config{{"id", id_},
                                       {"start", start_s_},
                                       {"options", options_},
                                       {"tags", boost::json::array(tags_.begin(), tags_.end())}})
                    .substr(1) +
                "\n");
    }

private:
    static constexpr const char* file_name = "rtrain.json";

    [[nodiscard]] static std::string begin_of(std::string_view tracker) {
        return rtrain::detail::concat("{\"tracker\":\"", tracker, "\",");
    }

    std::filesystem::path file_;
    std::string tracker_;
    std::string id_;
    std::int64_t start_s_ = 0;
    Config options_;
    std::vector<std::string> tags_;
};

} // namespace rtrain::track
