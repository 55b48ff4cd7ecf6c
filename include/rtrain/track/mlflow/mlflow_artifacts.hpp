// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the files of a run for the MLflow run's artifacts, and the server's upload path. A file
/// is inside the run if its canonical path is: links may lead elsewhere.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fnmatch.h>
#include <sys/stat.h>

namespace rtrain::track::mlflow {

/// Artifact names and their canonical paths.
struct Artifacts {
    std::map<std::string, std::filesystem::path> files{};
    std::vector<std::filesystem::path> outside{}; ///< outside the run, and therefore omitted
};

namespace internal {

/// `root`: canonical directory that must contain the files. "": no restriction.
inline void add_artifact(const std::filesystem::path& path, const std::string& name,
                         const std::filesystem::path& root, Artifacts& found) {
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error) { // a dangling link
        return;
    }
    if (std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first != root.end()) {
        found.outside.push_back(path);
    } else if (std::filesystem::is_directory(real)) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
            if (!entry.is_directory()) {
                add_artifact(entry.path(),
                             name + '/' + entry.path().lexically_relative(path).string(), root,
                             found);
            }
        }
    } else if (std::filesystem::is_regular_file(real)) {
        found.files[name] = real;
    }
}

} // namespace internal

/// `patterns`: see MlFlowOptions::artifacts. Absolute ones may lead out of the run only if
/// `trusted`: set by the program.
[[nodiscard]] inline Artifacts artifacts_of(const std::filesystem::path& directory,
                                            const std::vector<std::string>& patterns,
                                            bool trusted) {
    Artifacts found;
    const auto root = std::filesystem::canonical(directory);
    for (const std::string& pattern : patterns) {
        if (const std::filesystem::path path = pattern; path.is_absolute()) {
            internal::add_artifact(path, path.filename().string(),
                                   trusted ? std::filesystem::path() : root, found);
            continue;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
            const std::string name = entry.path().lexically_relative(directory).string();
            if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) {
                internal::add_artifact(entry.path(), name, root, found);
            }
        }
    }
    return found;
}

/// Changes with the file's contents. Empty if the file does not exist.
[[nodiscard]] inline std::string mark_of(const std::filesystem::path& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) {
        return "";
    }
    return std::to_string(status.st_size) + " bytes at " + std::to_string(status.st_mtim.tv_sec) +
           "." + std::to_string(status.st_mtim.tv_nsec);
}

/// The path in `artifact_uri`, if the server stores files itself: mlflow-artifacts:/path, or
/// mlflow-artifacts://authority/path of this server. None if files are stored elsewhere.
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
