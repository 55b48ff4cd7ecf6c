// SPDX-License-Identifier: Apache-2.0
/// @file
/// Filesystem: where checkpoints and results are stored, on disks or on a storage service. Local is
/// storage/local.hpp, S3 and compatible services are storage/cloud/arrow.hpp; any type that
/// satisfies the concept works. Needs no rename and no append, because object stores have neither.
///
/// Paths are '/'-separated strings within the file system, for example "bucket/team/run". Members
/// may be called concurrently. They throw StorageError for permanent failures,
/// TransientStorageError for failures that a retry may fix.
/// Cost tier 0: std only.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {
namespace storage {

/// A directory entry: a file or a directory.
struct Entry {
    std::string name; ///< relative to the listed directory
    std::uint64_t size = 0;
    bool is_directory = false;    ///< otherwise a file
    std::int64_t modified_ns = 0; ///< of a file: nanoseconds since 1970; 0 if unknown

    friend bool operator==(const Entry&, const Entry&) = default;
};

} // namespace storage

namespace detail {

template <class F>
concept HasList = requires(F& files, const std::string& path) {
    { files.list(path) } -> std::same_as<std::vector<storage::Entry>>;
};
template <class F>
concept HasReadFile = requires(F& files, const std::string& path) {
    { files.read(path) } -> std::same_as<std::string>;
};
template <class F>
concept HasWriteFile = requires(F& files, const std::string& path, std::string_view text) {
    files.write(path, text);
};
template <class F>
concept HasUpload = requires(F& files, const std::filesystem::path& local,
                             const std::string& path) {
    files.upload(local, path);
};
template <class F>
concept HasDownload = requires(F& files, const std::string& path,
                               const std::filesystem::path& local) {
    files.download(path, local);
};
template <class F>
concept HasRemove = requires(F& files, const std::string& path) {
    files.remove(path);
};
template <class F>
concept HasExists = requires(F& files, const std::string& path) {
    { files.exists(path) } -> std::same_as<bool>;
};
template <class F>
concept HasReadAt = requires(F& files, const std::string& path, std::uint64_t offset,
                             std::size_t length) {
    { files.read_at(path, offset, length) } -> std::same_as<std::string>;
};
template <class F>
concept HasLookAt = requires(F& files, const std::string& path) {
    { files.look_at(path) } -> std::same_as<std::optional<storage::Entry>>;
};
template <class F>
concept HasReadsAt = requires(const F& files) {
    { files.reads_at() } -> std::same_as<bool>;
};

} // namespace detail

namespace storage {

/// Requirements of a file system.
/// - `list`: the direct children in any order; empty if the directory does not exist.
/// - `read`: a small file as a whole.
/// - `write`: creates or replaces a file, with its parent directories. Readers see all of it or
///   nothing, even if the writer dies; it is durable on return.
/// - `upload`: like `write`, from a local file of any size.
/// - `download`: into a local file, which is complete or absent.
/// - `remove`: a file, or a directory recursively. A missing path is not an error.
/// - `exists`: a file, or a directory (on an object store: one that is not empty).
template <class F>
concept Filesystem =
    std::copyable<F> && detail::HasList<F> && detail::HasReadFile<F> && detail::HasWriteFile<F> &&
    detail::HasUpload<F> && detail::HasDownload<F> && detail::HasRemove<F> && detail::HasExists<F>;

/// Optional: `read_at` reads part of a file, `length` bytes from `offset`, fewer at its end and
/// none after it. Data sets use it. Without it, each node downloads their files once
/// (storage/node/random_access_file.hpp). A file system that wraps another one reports whether that
/// supports it with `bool reads_at() const`. Also optional: `look_at` returns the entry of a path,
/// nullopt if it does not exist; without it, the parent directory is listed.
template <class F>
concept RandomAccessFilesystem = Filesystem<F> && detail::HasReadAt<F>;

/// Explains why `F` is not a Filesystem: one sentence for each unmet requirement.
template <class F>
struct ExplainFilesystem {
    static_assert(std::copyable<F>,
                  "rtrain: Filesystem not met: the type must be copyable [RT-Y1]");
    static_assert(detail::HasList<F>,
                  "rtrain: Filesystem not met: missing member "
                  "`std::vector<rtrain::storage::Entry> list(const std::string& path)` [RT-Y2]");
    static_assert(detail::HasReadFile<F>, "rtrain: Filesystem not met: missing member "
                                          "`std::string read(const std::string& path)` [RT-Y3]");
    static_assert(detail::HasWriteFile<F>,
                  "rtrain: Filesystem not met: missing member "
                  "`void write(const std::string& path, std::string_view text)` [RT-Y4]");
    static_assert(detail::HasUpload<F>, "rtrain: Filesystem not met: missing member "
                                        "`void upload(const std::filesystem::path& local, const "
                                        "std::string& path)` [RT-Y5]");
    static_assert(detail::HasDownload<F>, "rtrain: Filesystem not met: missing member "
                                          "`void download(const std::string& path, const "
                                          "std::filesystem::path& local)` [RT-Y6]");
    static_assert(detail::HasRemove<F>, "rtrain: Filesystem not met: missing member "
                                        "`void remove(const std::string& path)` [RT-Y7]");
    static_assert(detail::HasExists<F>, "rtrain: Filesystem not met: missing member "
                                        "`bool exists(const std::string& path)` [RT-Y8]");
};

struct Local;

/// Any file system, chosen at run time. Copies are cheap and share state.
class AnyFilesystem {
public:
    /// `scheme`: used in messages; "s3" gives "s3://bucket/run".
    template <class F>
    requires(!std::same_as<F, AnyFilesystem> && std::is_class_v<F>)
        AnyFilesystem(F files, std::string scheme = "")
        : scheme_(std::move(scheme)) {
        if constexpr (Filesystem<F>) {
            held_ = std::make_shared<Model<F>>(std::move(files));
            is_local_ = std::same_as<F, Local>;
        } else {
            static_cast<void>(ExplainFilesystem<F>{});
        }
    }

    [[nodiscard]] std::vector<Entry> list(const std::string& path) const {
        return held_->list(path);
    }
    [[nodiscard]] std::string read(const std::string& path) const { return held_->read(path); }
    void write(const std::string& path, std::string_view text) const { held_->write(path, text); }
    void upload(const std::filesystem::path& local, const std::string& path) const {
        held_->upload(local, path);
    }
    void download(const std::string& path, const std::filesystem::path& local) const {
        held_->download(path, local);
    }
    void remove(const std::string& path) const { held_->remove(path); }
    [[nodiscard]] bool exists(const std::string& path) const { return held_->exists(path); }
    /// Same as RandomAccessFilesystem's. If unsupported, reads the whole file.
    [[nodiscard]] std::string read_at(const std::string& path, std::uint64_t offset,
                                      std::size_t length) const {
        return held_->read_at(path, offset, length);
    }
    /// Returns the entry at `path`, a file or directory; nullopt if it does not exist.
    [[nodiscard]] std::optional<Entry> look_at(const std::string& path) const {
        return held_->look_at(path);
    }
    /// True if the file system itself supports reading parts of files.
    [[nodiscard]] bool reads_at() const { return held_->reads_at(); }

    /// True if it wraps a storage::Local, so that `path` is on this machine.
    [[nodiscard]] bool is_local() const { return is_local_; }
    /// The constructor's argument; empty for local files.
    [[nodiscard]] const std::string& scheme() const noexcept { return scheme_; }
    /// Returns the name used in messages: "s3://bucket/run", or the path without a scheme.
    [[nodiscard]] std::string uri(const std::string& path) const {
        return scheme_.empty() ? path : scheme_ + "://" + path;
    }

private:
    struct Interface {
        virtual ~Interface() = default;
        virtual std::vector<Entry> list(const std::string& path) = 0;
        virtual std::string read(const std::string& path) = 0;
        virtual void write(const std::string& path, std::string_view text) = 0;
        virtual void upload(const std::filesystem::path& local, const std::string& path) = 0;
        virtual void download(const std::string& path, const std::filesystem::path& local) = 0;
        virtual void remove(const std::string& path) = 0;
        virtual bool exists(const std::string& path) = 0;
        virtual std::string read_at(const std::string& path, std::uint64_t offset,
                                    std::size_t length) = 0;
        virtual std::optional<Entry> look_at(const std::string& path) = 0;
        [[nodiscard]] virtual bool reads_at() const = 0;
    };
    template <class F>
    struct Model final : Interface {
        explicit Model(F given) : files(std::move(given)) {}
        std::vector<Entry> list(const std::string& path) override { return files.list(path); }
        std::string read(const std::string& path) override { return files.read(path); }
        void write(const std::string& path, std::string_view text) override {
            files.write(path, text);
        }
        void upload(const std::filesystem::path& local, const std::string& path) override {
            files.upload(local, path);
        }
        void download(const std::string& path, const std::filesystem::path& local) override {
            files.download(path, local);
        }
        void remove(const std::string& path) override { files.remove(path); }
        bool exists(const std::string& path) override { return files.exists(path); }
        std::string read_at(const std::string& path, std::uint64_t offset,
                            std::size_t length) override {
            if constexpr (detail::HasReadAt<F>) {
                return files.read_at(path, offset, length);
            } else {
                std::string text = files.read(path);
                return offset < text.size() ? text.substr(offset, length) : std::string();
            }
        }
        std::optional<Entry> look_at(const std::string& path) override {
            if constexpr (detail::HasLookAt<F>) {
                return files.look_at(path);
            } else {
                const auto slash = path.rfind('/');
                const bool is_bare = slash == std::string::npos;
                for (Entry& entry : files.list(is_bare ? "" : path.substr(0, slash))) {
                    if (entry.name == (is_bare ? path : path.substr(slash + 1))) {
                        return std::move(entry);
                    }
                }
                return std::nullopt;
            }
        }
        [[nodiscard]] bool reads_at() const override {
            if constexpr (detail::HasReadAt<F> && detail::HasReadsAt<F>) {
                return files.reads_at();
            } else {
                return detail::HasReadAt<F>;
            }
        }
        F files;
    };

    std::shared_ptr<Interface> held_;
    std::string scheme_;
    bool is_local_ = false;
};

} // namespace storage
} // namespace rtrain
