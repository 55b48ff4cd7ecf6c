// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank copies which files when ranks report directories that become one checkpoint. Pure
/// functions of the lists of all ranks; nothing is collective.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The names of the files in a directory that a rank reports. Throws CheckpointError [RT-K14] for a
/// file or link that a checkpoint cannot store.
[[nodiscard]] inline std::vector<std::string>
names_to_report(const std::filesystem::path& directory) {
    std::vector<std::string> names = checkpoint::names_of_files(directory);
    for (const std::string& name : names) {
        if (!checkpoint::is_safe_name(name)) {
            throw CheckpointError("RT-K14",
                                  concat("the file \"", name, "\" in ", directory.string(),
                                         " has a name that is not valid on every file "
                                         "system; rename it"));
        }
    }
    return names;
}

/// Each file is copied by the lowest rank that has one of its name.
class FileOwners {
public:
    /// `names`: of the files of each rank.
    explicit FileOwners(std::vector<std::vector<std::string>> names) : names_(std::move(names)) {
        for (std::size_t rank = 0; rank < names_.size(); ++rank) {
            for (const std::string& name : names_[rank]) {
                ranks_[name].push_back(static_cast<int>(rank));
            }
        }
    }

    /// True if several ranks have a file of the same name.
    [[nodiscard]] bool are_shared() const {
        return std::ranges::any_of(ranks_, [](const auto& item) { return item.second.size() > 1; });
    }
    /// The files of this rank that no lower rank has.
    [[nodiscard]] std::vector<std::string> copied_by(int rank) const {
        return names_if(rank, [&](const std::vector<int>& ranks) { return ranks.front() == rank; });
    }
    /// The files of this rank that other ranks have, too.
    [[nodiscard]] std::vector<std::string> shared_by(int rank) const {
        return names_if(rank, [](const std::vector<int>& ranks) { return ranks.size() > 1; });
    }

private:
    template <class Condition>
    [[nodiscard]] std::vector<std::string> names_if(int rank, Condition condition) const {
        std::vector<std::string> found;
        for (const std::string& name : names_.at(static_cast<std::size_t>(rank))) {
            if (condition(ranks_.at(name))) {
                found.push_back(name);
            }
        }
        return found;
    }

    std::vector<std::vector<std::string>> names_;
    std::map<std::string, std::vector<int>> ranks_; ///< that have a file of that name
};

/// `records`: for each rank, what identifies the contents of the files that it shares with others,
/// by name. Throws CheckpointError [RT-K5] if those of one name differ.
inline void require_equal_files(const std::vector<boost::json::object>& records) {
    std::map<std::string, std::pair<std::size_t, boost::json::value>> first;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
        for (const auto& item : records[rank]) {
            const auto [known, added] =
                first.try_emplace(std::string(item.key()), std::pair(rank, item.value()));
            if (!added && known->second.second != item.value()) {
                throw CheckpointError("RT-K5", concat("ranks ", known->second.first, " and ", rank,
                                                      " reported different files named \"",
                                                      std::string(item.key()),
                                                      "\"; put the rank into the name"));
            }
        }
    }
}

} // namespace rtrain::detail
