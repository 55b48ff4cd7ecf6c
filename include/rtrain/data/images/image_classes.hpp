// SPDX-License-Identifier: Apache-2.0
/// @file
/// The classes of files by their directories, as in torchvision's ImageFolder. Includes no
/// libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The class of a file below a given directory is the name of the subdirectory that leads to it:
/// "cat" for "photos/cat/2025/1.jpg" in "photos". The class of other files, given directly or by a
/// glob, is the name of their directory.
class ClassDirectories {
public:
    ClassDirectories(const Paths& paths, const storage::TransferConfig& transfer) {
        for (const std::string& path : paths.given()) {
            const storage::Location at = storage::locate(path, transfer);
            std::string root = at.filesystem.uri(at.path);
            while (root.ends_with('/')) {
                root.pop_back();
            }
            roots_.insert(std::move(root));
        }
    }

    /// Throws DataError [RT-D84] for a file without such a directory.
    [[nodiscard]] std::string class_of(const storage::RandomAccessFile& file) const {
        constexpr auto none = std::string::npos;
        const std::string uri = file.uri();
        const std::size_t end = uri.rfind('/'); // of its directory
        std::size_t begin = end == none || end == 0 ? none : uri.rfind('/', end - 1);
        for (std::size_t at = end; at != none; at = at == 0 ? none : uri.rfind('/', at - 1)) {
            if (roots_.contains(std::string_view(uri).substr(0, at))) {
                begin = at;
                break;
            }
        }
        const std::size_t first = begin == none ? 0 : begin + 1;
        if (end == none || first >= end) {
            throw DataError(
                "RT-D84",
                detail::concat(uri,
                               " is not in a directory that could be its class; pass the directory "
                               "above cats/1.jpg to read_images(), or set .labels = false"));
        }
        return uri.substr(first, uri.find('/', first) - first);
    }

private:
    std::set<std::string, std::less<>> roots_;
};

/// The classes of files, sorted by name, and the class of each file.
struct FileClasses {
    std::vector<std::string> names;   ///< names of classes, by label
    std::vector<std::int64_t> labels; ///< the class of each file
};

/// `names` are the allowed classes, in this order; empty: those of the files, sorted by name.
/// Throws DataError [RT-D84].
[[nodiscard]] inline FileClasses classes_of(const std::vector<storage::RandomAccessFile>& files,
                                            const Paths& paths, const FileOptions& options,
                                            std::vector<std::string> names) {
    const ClassDirectories directories(paths, options.transfer);
    std::vector<std::string> of_files;
    of_files.reserve(files.size());
    for (const auto& file : files) {
        of_files.push_back(directories.class_of(file));
    }
    if (names.empty()) {
        const std::set<std::string> found(of_files.begin(), of_files.end());
        names.assign(found.begin(), found.end());
    }
    std::map<std::string_view, std::int64_t> numbers;
    for (std::size_t i = 0; i < names.size(); ++i) {
        numbers.emplace(names[i], static_cast<std::int64_t>(i));
    }
    FileClasses classes;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const auto number = numbers.find(of_files[i]);
        if (number == numbers.end()) {
            throw DataError("RT-D84", detail::concat(files[i].uri(), " has the class \"",
                                                     of_files[i], "\", which is not one of the ",
                                                     names.size(), " given in .classes"));
        }
        classes.labels.push_back(number->second);
    }
    classes.names = std::move(names);
    return classes;
}

} // namespace rtrain::data
