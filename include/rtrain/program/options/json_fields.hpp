// SPDX-License-Identifier: Apache-2.0
/// @file
/// JsonFields: reads options from a JSON object. Unknown keys and wrong types are errors that name
/// the key. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/config/config_value.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::program {

/// Call read() for each option that exists, and then finish().
class JsonFields {
public:
    /// `key`: the object's path, such as "checkpoint"; empty: the whole file. Throws ConfigError
    /// [RT-E64] if `json` is not an object.
    JsonFields(const boost::json::value& json, std::string key) : key_(std::move(key)) {
        Config object;
        checked([&] { detail::ConfigValue(json, key_).read(object); });
        object_ = std::move(object);
    }

    /// Sets `to` if the object has that option. Throws ConfigError [RT-E64].
    template <class T>
    void read(const char* name, T& to) {
        use(name, [&](const boost::json::value& json, const std::string& key) {
            checked([&] { detail::ConfigValue(json, key).read(to); });
        });
    }

    /// Sets `to`, which is constructed from a name, such as ScoreOrder.
    template <class T>
    void read_name(const char* name, T& to) {
        use(name, [&](const boost::json::value& json, const std::string& key) {
            std::string text;
            checked([&] { detail::ConfigValue(json, key).read(text); });
            try {
                to = T(text);
            } catch (const ConfigError& error) {
                throw ConfigError("RT-E64", detail::concat('"', key, "\": ", error.message()));
            }
        });
    }

    /// Returns the "kind", which is one of `kinds`. Throws ConfigError [RT-E64].
    [[nodiscard]] std::string read_kind(const std::vector<std::string>& kinds) {
        std::string kind;
        read("kind", kind);
        if (std::ranges::find(kinds, kind) == kinds.end()) {
            throw ConfigError("RT-E64", detail::concat('"', path_of("kind"), "\" is \"", kind,
                                                       "\"; ", detail::did_you_mean(kind, kinds),
                                                       "expected one of ", detail::listed(kinds)));
        }
        return kind;
    }

    /// Calls `read(json, key)` if the object has that option.
    template <class Read>
    void use(const char* name, Read&& read) {
        names_.emplace_back(name);
        if (const auto* const json = object_.if_contains(name)) {
            read(*json, path_of(name));
        }
    }

    [[nodiscard]] std::string path_of(std::string_view name) const {
        return detail::concat(key_, key_.empty() ? "" : "/", name);
    }

    /// Throws ConfigError [RT-E64] for an option that no call has named.
    void finish() const {
        for (const auto& item : object_) {
            if (std::ranges::find(names_, item.key()) == names_.end()) {
                throw ConfigError("RT-E64",
                                  detail::concat("unknown option \"", path_of(item.key()), "\"; ",
                                                 detail::did_you_mean(item.key(), names_),
                                                 "the options are ", detail::listed(names_)));
            }
        }
    }

    /// Throws ConfigError [RT-E64] for what ConfigValue rejects.
    template <class Read>
    static void checked(Read&& read) {
        try {
            read();
        } catch (const ConfigError& error) {
            throw ConfigError("RT-E64", error.message());
        }
    }

private:
    std::string key_;
    boost::json::object object_;
    std::vector<std::string> names_;
};

} // namespace rtrain::program
