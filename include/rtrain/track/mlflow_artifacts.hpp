// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which files of a run go to the MLflow run's artifacts, and where an MLflow server takes them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fnmatch.h>
#include <sys/stat.h>

namespace rtrain::track::mlflow {

namespace internal {

inline void add_artifact(const std::filesystem::path& path, const std::string& name,
                         std::map<std::string, std::filesystem::path>& found) {
    if (std::filesystem::is_regular_file(path)) {
        found[name] = path;
    } else if (std::filesystem::is_directory(path)) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
            if (entry.is_regular_file()) {
                found[name + '/' + entry.path().lexically_relative(path).string()] = entry.path();
            }
        }
    }
}

} // namespace internal

/// Files by the name that they get. `patterns` are those of MlFlowOptions::artifacts.
[[nodiscard]] inline std::map<std::string, std::filesystem::path>
artifacts_of(const std::filesystem::path& directory, const std::vector<std::string>& patterns) {
    std::map<std::string, std::filesystem::path> found;
    for (const std::string& pattern : patterns) {
        if (const std::filesystem::path path = pattern; path.is_absolute()) {
            internal::add_artifact(path, path.filename().string(), found);
            continue;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
            const std::string name = entry.path().lexically_relative(directory).string();
            if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) {
                internal::add_artifact(entry.path(), name, found);
            }
        }
    }
    return found;
}

/// Changes with the file's contents. Empty when there is no such file.
[[nodiscard]] inline std::string mark_of(const std::filesystem::path& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) {
        return "";
    }
    return std::to_string(status.st_size) + " bytes at " + std::to_string(status.st_mtim.tv_sec) +
           "." + std::to_string(status.st_mtim.tv_nsec);
}

/// The path of `artifact_uri`, where the server itself takes files: of mlflow-artifacts:/path, and
/// of mlflow-artifacts://authority/path if that is the server. None when it keeps them elsewhere.
[[nodiscard]] inline std::optional<std::string> proxied_path(std::string_view artifact_uri,
                                                             std::string_view authority) {
    constexpr std::string_view scheme = "mlflow-artifacts:";
    if (!artifact_uri.starts_with(scheme)) {
        return std::nullopt;
    }
    artifact_uri.remove_prefix(scheme.size());
    if (artifact_uri.starts_with("//")) {
        artifact_uri.remove_prefix(2);
        if (!artifact_uri.starts_with(authority) ||
            artifact_uri.substr(authority.size()).substr(0, 1) != "/") {
            return std::nullopt;
        }
        artifact_uri.remove_prefix(authority.size());
    }
    const auto begin = artifact_uri.find_first_not_of('/');
    return begin == std::string_view::npos ? std::nullopt
                                           : std::optional(std::string(artifact_uri.substr(begin)));
}

} // namespace rtrain::track::mlflow
