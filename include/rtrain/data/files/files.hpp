// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the files of a data set: paths, directories and globs, local or on a storage service.
/// Includes no libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/unpack.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/safe_name.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/node/node_copy.hpp>
#include <rtrain/storage/node/random_access_file.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/retrying.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

namespace rtrain::data {

/// One path or several. Each is a file, a directory or a glob, and may be a URI: "s3://bucket/logs"
/// (storage/locate.hpp).
class Paths {
public:
    Paths(const char* path) : given_{path} {}
    Paths(std::string path) : given_{std::move(path)} {}
    Paths(const std::filesystem::path& path) : given_{path.string()} {}
    Paths(std::vector<std::string> paths) : given_(std::move(paths)) {}
    Paths(std::initializer_list<std::string> paths) : given_(paths) {}

    /// The paths as given.
    [[nodiscard]] const std::vector<std::string>& given() const noexcept { return given_; }

private:
    std::vector<std::string> given_;
};

/// Selects the files of a reader.
struct FileOptions {
    /// For a directory, only the files whose names end in one of these, in upper or lower case:
    /// {".txt", ".text"}. Empty: all.
    std::vector<std::string> endings = {};
    storage::TransferConfig transfer = {}; ///< timeouts and retries
    bool take_empty = false;               ///< accept empty files: the reader decides
    /// Add directory names such as "year=2024" as columns, as in Hive.
    bool partitions = true;
    bool unpacks = false; ///< endings may be followed by .gz or .zst; set by readers of text
};

} // namespace rtrain::data

namespace rtrain::detail {

/// A name in lower case, without a .gz or .zst ending.
[[nodiscard]] inline std::string_view without_packing(std::string_view name) {
    for (const std::string_view ending : {".gz", ".zst"}) {
        if (name.ends_with(ending)) {
            return name.substr(0, name.size() - ending.size());
        }
    }
    return name;
}

/// Finds the files of one path.
class FileSearch {
public:
    FileSearch(const std::string& path, const data::FileOptions& options)
        : options_(options), at_(locate(path, options)) {}

    [[nodiscard]] std::vector<storage::RandomAccessFile> find() {
        const auto entry = look_at(at_.path);
        if (entry && !entry->is_directory) {
            add(at_.path, *entry);
        } else if (entry) {
            add_below(at_.path);
        } else if (at_.path.find_first_of("*?[") != std::string::npos) {
            const bool is_absolute = at_.path.starts_with('/');
            add_matches(is_absolute ? "/" : "", std::string_view(at_.path).substr(is_absolute));
        } else {
            throw DataError("RT-D25", uri(at_.path) + ": no such file or directory");
        }
        if (found_.empty()) {
            throw DataError(
                "RT-D25",
                concat(uri(at_.path), ": no data files found",
                       options_.endings.empty() ? "" : " whose names end in " + expected_endings(),
                       entry ? "; names that begin with . or _ are left out"
                             : "; a glob finds files, not directories",
                       packed_.empty() ? "" : "; unpack " + packed_));
        }
        return std::move(found_);
    }

private:
    static storage::Location locate(const std::string& path, const data::FileOptions& options) {
        storage::Location at = storage::locate(path, options.transfer);
        if (!at.filesystem.is_local()) {
            const std::string scheme = at.filesystem.scheme();
            at.filesystem = storage::AnyFilesystem(
                storage::Retrying(std::move(at.filesystem), options.transfer), scheme);
        }
        while (at.path.size() > 1 && at.path.ends_with('/')) {
            at.path.pop_back();
        }
        return at;
    }

    [[nodiscard]] std::string uri(const std::string& path) const {
        return at_.filesystem.uri(path);
    }

    [[nodiscard]] std::string expected_endings() const {
        std::string text;
        for (const std::string& ending : options_.endings) {
            text += (text.empty() ? "" : " or ") + ending;
        }
        return text;
    }

    [[nodiscard]] std::optional<storage::Entry> look_at(const std::string& path) const {
        refuse_loop(path);
        return at_.filesystem.look_at(path);
    }

    /// Throws if a link leads to itself, directly or through others.
    void refuse_loop(const std::string& path) const {
        std::error_code error;
        if (at_.filesystem.is_local() && (static_cast<void>(std::filesystem::status(path, error)),
                                          error == std::errc::too_many_symbolic_link_levels)) {
            throw DataError("RT-D27", concat(path, ": symbolic links lead in a circle"));
        }
    }

    static std::string join(const std::string& directory, const std::string& name) {
        return directory.empty() || directory.ends_with('/') ? directory + name
                                                             : directory + "/" + name;
    }

    void add(const std::string& path, const storage::Entry& entry) {
        if (entry.size == 0 && !options_.take_empty) {
            throw DataError("RT-D26", uri(path) + " is empty; a data file has at least one row");
        }
        found_.emplace_back(at_.filesystem, path, entry.size, entry.modified_ns, options_.transfer);
    }

    void add_below(const std::string& directory) {
        for (const storage::Entry& entry : list(directory)) {
            const std::string path = join(directory, entry.name);
            const std::string name = checkpoint::names::lower_case(entry.name);
            const auto has = [&](const std::string& ending) {
                const std::string lower = checkpoint::names::lower_case(ending);
                return name.ends_with(lower) ||
                       (options_.unpacks && without_packing(name).ends_with(lower));
            };
            if (entry.name.starts_with('.') || entry.name.starts_with('_')) {
                continue;
            }
            if (entry.is_directory) {
                add_below(path);
            } else if (options_.endings.empty() || std::ranges::any_of(options_.endings, has)) {
                add(path, entry);
            } else if (without_packing(name).size() < name.size()) {
                packed_ = uri(path);
            }
        }
        leave();
    }

    /// `pattern` is the rest of the glob after `directory`. "**" matches any directories.
    void add_matches(const std::string& directory, std::string_view pattern) {
        const auto slash = pattern.find('/');
        const std::string part(pattern.substr(0, slash));
        const bool is_last = slash == std::string_view::npos;
        const std::string_view rest = is_last ? "" : pattern.substr(slash + 1);
        const bool is_any = part == "**" && !is_last;
        if (is_any) {
            add_matches(directory, rest);
        }
        if (!is_any && !is_last && part.find_first_of("*?[") == std::string::npos) {
            add_matches(join(directory, part), rest);
            return;
        }
        for (const storage::Entry& entry : list(directory)) {
            const std::string path = join(directory, entry.name);
            if (is_any) {
                if (entry.is_directory && !entry.name.starts_with('.')) {
                    add_matches(path, pattern);
                }
            } else if (::fnmatch(part.c_str(), entry.name.c_str(), FNM_PERIOD) == 0) {
                if (!is_last && entry.is_directory) {
                    add_matches(path, rest);
                } else if (is_last && !entry.is_directory) {
                    add(path, entry);
                }
            }
        }
        leave();
    }

    /// Lists a directory, which counts as entered until leave(). Throws if it is already entered:
    /// links could form an endless loop.
    [[nodiscard]] std::vector<storage::Entry> list(const std::string& directory) {
        if (!at_.filesystem.is_local()) {
            return at_.filesystem.list(directory);
        }
        const std::string path = directory.empty() ? "." : directory;
        std::error_code error;
        auto real = std::filesystem::canonical(path, error);
        if (!error && std::ranges::find(entered_, real) != entered_.end()) {
            throw DataError("RT-D27", concat(path, ": symbolic links lead in a circle, back to ",
                                             real.string()));
        }
        entered_.push_back(std::move(real));
        refuse_links_to_nothing(path);
        return at_.filesystem.list(path);
    }
    void leave() {
        if (at_.filesystem.is_local()) {
            entered_.pop_back();
        }
    }

    /// Listings leave these out.
    void refuse_links_to_nothing(const std::string& directory) const {
        std::error_code error;
        for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
             at.increment(error)) {
            std::error_code ignored;
            if (at->is_symlink(ignored) && !at->exists(ignored)) {
                const std::string path = at->path().string();
                refuse_loop(path);
                throw DataError("RT-D25", path + ": a symbolic link to a file that does not exist");
            }
        }
    }

    const data::FileOptions& options_;
    storage::Location at_;
    std::vector<std::filesystem::path> entered_; ///< without links
    std::vector<storage::RandomAccessFile> found_;
    std::string packed_; ///< a packed file
};

} // namespace rtrain::detail

namespace rtrain::data {

/// The files of `paths`, sorted by path, each once. Their contents are not read.
/// - A file is itself.
/// - A directory is all files below it with the endings of the options, except those in files or
///   directories whose names begin with '.' or '_'.
/// - A glob has * and ? and [a-z] for parts of a name, and ** for any directories:
///   "**/part-?.json". It matches files. In a URI, ? begins the options and cannot be used.
///
/// Throws DataError: RT-D25 nothing is found, RT-D26 a file is empty, RT-D27 symbolic links form a
/// loop; and StorageError as storage::locate() and the file system.
///
/// @code
/// for (const auto& file : rtrain::data::list_files({"logs/2025", "s3://bucket/logs/*.json"})) {
///     std::cout << file.uri() << ' ' << file.size() << '\n';
/// }
/// @endcode
[[nodiscard]] inline std::vector<storage::RandomAccessFile>
list_files(const Paths& paths, const FileOptions& options = {}) {
    std::vector<storage::RandomAccessFile> files;
    for (const std::string& path : paths.given()) {
        std::ranges::move(detail::FileSearch(path, options).find(), std::back_inserter(files));
    }
    if (files.empty()) {
        throw DataError("RT-D25", "no path of a data file is given");
    }
    std::ranges::sort(files, {}, &storage::RandomAccessFile::uri);
    files.erase(
        std::unique(files.begin(), files.end(),
                    [](const auto& one, const auto& other) { return one.uri() == other.uri(); }),
        files.end());
    return files;
}

/// Unpacks a file packed by gzip or zstd, once per node, below TMPDIR, as long as any process has
/// it open; other files are returned unchanged. Throws DataError [RT-D31] if it is damaged,
/// StorageError.
[[nodiscard]] inline storage::RandomAccessFile unpacked(const storage::RandomAccessFile& file,
                                                        const storage::TransferConfig& transfer) {
    constexpr std::size_t piece = std::size_t{4} << 20U;
    const auto packing = format::packing_of(file.read_at(0, 4));
    if (packing == format::Packing::none) {
        return file;
    }
    const auto fill = [&](const std::filesystem::path& directory) {
        storage::OutputFile plain(directory / "unpacked");
        std::uint64_t at = 0;
        const auto next = [&] {
            std::string packed = file.read_at(at, piece);
            at += packed.size();
            return packed;
        };
        try {
            format::unpack(packing, next, [&](std::string_view text) { plain.write(text); });
        } catch (const format::UnpackError& error) {
            throw DataError("RT-D31",
                            detail::concat("cannot unpack ", file.uri(), " by ",
                                           format::name_of(packing), ": ", error.what(),
                                           "; write or copy it again, or give it unpacked"));
        }
        if (file.modified_ns() != 0) { // an index of an earlier run may exist for it
            const struct timespec times[2] = {
                {0, UTIME_OMIT},
                {file.modified_ns() / 1'000'000'000, file.modified_ns() % 1'000'000'000}};
            ::utimensat(AT_FDCWD, (directory / "unpacked").c_str(), times, 0);
        }
    };
    auto copy = storage::NodeCopy::make(
        detail::concat("unpacked ", file.uri(), '\n', file.size(), '\n', file.modified_ns(), '\n'),
        {}, storage::deadline_of(transfer), fill);
    if (!copy) {
        throw TransientStorageError(
            "RT-S12", detail::concat("another process of this node did not unpack ", file.uri(),
                                     " within deadline_s = ", transfer.deadline_s,
                                     " s; check that process, or raise deadline_s"));
    }
    const std::string path = (copy->directory() / "unpacked").string();
    const auto entry = storage::Local{}.look_at(path);
    if (!entry || entry->size == 0) {
        throw DataError("RT-D26", file.uri() + " is empty when unpacked; a data file has at least "
                                               "one row");
    }
    return {*std::move(copy), path, entry->size, entry->modified_ns, file.uri()};
}

/// Like list_files(), but unpacks packed files if the options allow it.
[[nodiscard]] inline std::vector<storage::RandomAccessFile> open_files(const Paths& paths,
                                                                       const FileOptions& options) {
    auto files = list_files(paths, options);
    for (auto& file : files) {
        const std::string name = checkpoint::names::lower_case(file.path());
        if (options.unpacks && detail::without_packing(name).size() < name.size()) {
            file = unpacked(file, options.transfer);
        }
    }
    return files;
}

} // namespace rtrain::data
