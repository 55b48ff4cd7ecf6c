// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door space.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/search/parameters.hpp>
#include <rtrain/tune/search/space.hpp>

#include <algorithm>
#include <set>

namespace rtrain::tune {

namespace internal {

RTRAIN_DOOR void check_name(const std::string& name) {
    if (name.empty() || name.front() == '/' || name.back() == '/' ||
        name.find("//") != std::string::npos) {
        throw ConfigError(
            "RT-U5",
            detail::concat(
                "the space has the name \"", name,
                "\"; use a name such as \"lr\", or parts separated by slashes: \"net/width\""));
    }
}

/// Adds the full names of all entries that are not spaces.
RTRAIN_DOOR void add_names(const Space& space, const std::string& above,
                           std::vector<std::string>& names) {
    for (const Space::Entry& entry : space) {
        const std::string name = above + entry.name;
        const auto* within = std::get_if<std::shared_ptr<const Space>>(&entry.content);
        if (within == nullptr || (*within)->empty()) {
            names.push_back(name);
        } else {
            add_names(**within, name + '/', names);
        }
    }
}

} // namespace internal

RTRAIN_DOOR Space::Space(std::vector<Entry> entries) : entries_(std::move(entries)) {
    for (const Entry& entry : entries_) {
        internal::check_name(entry.name);
    }
    std::vector<std::string> names;
    internal::add_names(*this, "", names);
    std::set<std::string> known;
    for (const std::string& name : names) {
        if (!known.insert(name).second) {
            throw ConfigError("RT-U5", detail::concat("the space has the name \"", name,
                                                      "\" twice; use each name once"));
        }
    }
    for (const std::string& name : names) {
        for (std::size_t end = name.find('/'); end != std::string::npos;
             end = name.find('/', end + 1)) {
            if (known.contains(name.substr(0, end))) {
                throw ConfigError("RT-U5",
                                  detail::concat("the space has \"", name, "\" and also \"",
                                                 name.substr(0, end),
                                                 "\", which is not a space; remove one of them"));
            }
        }
    }
}

} // namespace rtrain::tune
