// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which files of a run go to the MLflow run's artifacts, and where an MLflow server takes them.
/// A file is inside the run if its canonical path is: links lead elsewhere.
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

/// Artifacts by the names that they get, with their canonical paths.
struct Artifacts {
    std::map<std::string, std::filesystem::path> files{};
    std::vector<std::filesystem::path> outside{}; ///< of the run, and so left out
};

namespace internal {

/// `root`: canonical; what must hold the files. "": nothing.
inline void add_artifact(const std::filesystem::path& path, const std::string& name,
                         const std::filesystem::path& root, Artifacts& found) {
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error) { // a link that leads nowhere
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

/// `patterns` are those of MlFlowOptions::artifacts; absolute ones may lead out of the run only if
/// they are `trusted`: the program's own.
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
