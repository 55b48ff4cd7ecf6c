// SPDX-License-Identifier: Apache-2.0
/// @file
/// S3 and its like (s3://), Google Cloud Storage (gs://), Azure (abfs://) and HDFS (hdfs://),
/// through Apache Arrow. Including this header makes locate() know them; the program links
/// rtrain::arrow. HDFS also needs a Java machine and libhdfs where the program runs.
///
/// Credentials come from where the service's own tools take them (environment, files, the machine's
/// role), never from a URI. Options of a URI:
/// - s3: `region`, `endpoint_override` (host:port), `scheme` (https or http), `anonymous=true`;
///   else AWS_REGION, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL count.
/// - gs: `endpoint_override`, `scheme`, `anonymous=true`.
/// - abfs: `blob_storage_authority`, `dfs_storage_authority`, `enable_tls`, `credential_kind`.
/// - hdfs: `user`, `replication`, `default_block_size`.
/// @code
/// auto [files, path] = rtrain::storage::locate("s3://bucket/team?region=eu-central-1");
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/future.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain::storage {
namespace internal {

/// Arrow's text without any key of the environment.
[[nodiscard]] inline std::string without_keys(std::string text) {
    for (const char* const name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET",
          "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"}) {
        const char* const value = std::getenv(name);
        const std::string_view key = value != nullptr ? value : "";
        for (std::size_t at = 0; !key.empty() && (at = text.find(key, at)) != std::string::npos;) {
            text.replace(at, key.size(), "***");
        }
    }
    return text;
}

[[nodiscard]] inline bool contains_any(std::string_view text,
                                       std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(
        parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

[[nodiscard]] inline bool is_absence(const arrow::Status& status) {
    return contains_any(status.message(),
                        {"NO_SUCH_BUCKET", "NoSuchBucket", "does not exist", "NO_SUCH_KEY",
                         "RESOURCE_NOT_FOUND", "HTTP status 404", "NOT_FOUND"});
}

/// Throws what an Arrow call returned. What is not known to last counts as passing.
[[noreturn]] inline void throw_status(const arrow::Status& status, std::string_view action,
                                      const std::string& uri) {
    std::string text = without_keys(status.message());
    text.resize(std::min(text.find('\n'), text.size())); // HDFS lists every place it looked in
    const auto error = [&](std::string_view advice) {
        return rtrain::detail::concat("cannot ", action, ' ', uri, ": ", text, "; ", advice);
    };
    if (contains_any(text, {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH",
                            "INVALID_CLIENT_TOKEN_ID", "UNRECOGNIZED_CLIENT", "EXPIRED_TOKEN",
                            "InvalidAccessKeyId", "SignatureDoesNotMatch", "HTTP status 401",
                            "HTTP status 403", "Permission denied", "PERMISSION_DENIED",
                            "UNAUTHENTICATED", "Could not create a OAuth2"})) {
        throw StorageError("RT-S10", error("check the credentials in the environment of every "
                                           "rank, and what they allow"));
    }
    if (is_absence(status)) {
        throw StorageError("RT-S10",
                           error("check the bucket and the path; rtrain creates no bucket"));
    }
    if (status.IsInvalid() || status.IsNotImplemented() || status.IsTypeError() ||
        contains_any(text, {"HTTP status 400", "HTTP status 301", "INVALID_ARGUMENT",
                            "Unable to load lib"})) {
        throw StorageError("RT-S10", error("correct the URI or the installation"));
    }
    throw TransientStorageError("RT-S11",
                                error("the service may be overloaded or out of reach; check its "
                                      "address and the network"));
}

inline void require(const arrow::Status& status, std::string_view action, const std::string& uri) {
    if (!status.ok()) {
        throw_status(status, action, uri);
    }
}

template <class T>
[[nodiscard]] T require(arrow::Result<T> result, std::string_view action, const std::string& uri) {
    require(result.status(), action, uri);
    return std::move(result).ValueUnsafe();
}

/// Retries of single requests by the AWS client. Few: they can't be ended at a transfer's deadline.
class RequestRetries final : public arrow::fs::S3RetryStrategy {
public:
    explicit RequestRetries(TransferConfig config) : config_(std::move(config)) {}
    bool ShouldRetry(const AWSErrorDetail& error, std::int64_t attempted_retries) override {
        return error.should_retry && attempted_retries + 1 < std::min(config_.attempts, 5);
    }
    std::int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&,
                                               std::int64_t attempted_retries) override {
        return static_cast<std::int64_t>(
            1000 * pause_s(config_, static_cast<int>(std::min<std::int64_t>(attempted_retries + 1,
                                                                            config_.attempts))));
    }

private:
    TransferConfig config_;
};

/// Opens S3. Arrow wants it started once, and ended before the process is.
[[nodiscard]] inline arrow::Result<std::shared_ptr<arrow::fs::FileSystem>>
make_s3(const arrow::fs::S3Options& options) {
    auto files = arrow::fs::S3FileSystem::Make(options);
    struct End {
        ~End() { static_cast<void>(arrow::fs::EnsureS3Finalized()); }
    };
    static const End end; // made after Arrow's own static objects, so that it ends before them
    return files;
}

inline void start_s3() {
    static const arrow::Status status = [] {
        if (arrow::fs::IsS3Initialized()) {
            return arrow::Status::OK();
        }
        auto options = arrow::fs::S3GlobalOptions::Defaults();
        struct sigaction action = {};
        // A server that closes a connection must not end the training.
        options.install_sigpipe_handler =
            ::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
        return arrow::fs::InitializeS3(options);
    }();
    require(status, "start", "Arrow's S3");
}

} // namespace internal

/// A file system of Arrow as one of rtrain.
class ArrowFilesystem {
public:
    /// `scheme` as in URIs; object stores have no directories of their own.
    ArrowFilesystem(std::shared_ptr<arrow::fs::FileSystem> files, std::string scheme)
        : files_(std::move(files)), scheme_(std::move(scheme)),
          has_directories_(scheme_ == "hdfs" || scheme_ == "viewfs") {}

    /// On an object store this asks for all files below `path`, a request for each 1000.
    [[nodiscard]] std::vector<Entry> list(const std::string& path) const {
        arrow::fs::FileSelector selector;
        selector.base_dir = path;
        selector.allow_not_found = true;
        // Arrow leaves markers of empty directories behind; only files tell which are in use.
        selector.recursive = !has_directories_;
        std::map<std::string, Entry> entries;
        for (const auto& info :
             internal::require(files_->GetFileInfo(selector), "list", uri(path))) {
            std::string name = info.path().substr(std::min(path.size() + 1, info.path().size()));
            const auto slash = name.find('/');
            if (!info.IsFile() && !has_directories_) {
                continue;
            }
            const bool is_directory = slash != std::string::npos || !info.IsFile();
            name.resize(std::min(slash, name.size()));
            entries[name] = {.name = name,
                             .size = is_directory ? 0 : static_cast<std::uint64_t>(info.size()),
                             .is_directory = is_directory};
        }
        std::vector<Entry> found;
        for (auto& [name, entry] : entries) {
            found.push_back(std::move(entry));
        }
        return found;
    }

    [[nodiscard]] std::string read(const std::string& path) const {
        const auto file = open(path, "read");
        const auto size = internal::require(file->GetSize(), "read", uri(path));
        const auto bytes = internal::require(file->Read(size), "read", uri(path));
        require_all(bytes->size(), size, "read", path);
        return bytes->ToString();
    }

    void write(const std::string& path, std::string_view text) const {
        replace(path, "write", [&](arrow::io::OutputStream& out) {
            internal::require(out.Write(text.data(), static_cast<std::int64_t>(text.size())),
                              "write", uri(path));
        });
    }

    /// Big files go in parts, several at a time.
    void upload(const std::filesystem::path& local, const std::string& path) const {
        std::ifstream in(local, std::ios::binary);
        if (!in) {
            throw StorageError("RT-S4", rtrain::detail::concat("cannot read ", local.string()));
        }
        replace(path, "upload to", [&](arrow::io::OutputStream& out) {
            for (int parts = 1; in; ++parts) {
                auto part = internal::require(arrow::AllocateResizableBuffer(part_bytes),
                                              "upload to", uri(path));
                in.read(reinterpret_cast<char*>(part->mutable_data()), part_bytes);
                internal::require(part->Resize(in.gcount(), false), "upload to", uri(path));
                internal::require(out.Write(std::shared_ptr<arrow::Buffer>(std::move(part))),
                                  "upload to", uri(path));
                if (parts % parts_at_a_time == 0) { // bounds the memory
                    internal::require(out.Flush(), "upload to", uri(path));
                }
            }
            if (!in.eof()) {
                throw StorageError("RT-S4", rtrain::detail::concat("cannot read ", local.string()));
            }
        });
    }

    /// Big files come in parts, several at a time.
    void download(const std::string& path, const std::filesystem::path& local) const {
        const auto file = open(path, "download");
        const auto size = internal::require(file->GetSize(), "download", uri(path));
        const auto temporary = temporary_beside(local);
        std::deque<arrow::Future<std::shared_ptr<arrow::Buffer>>> parts;
        try {
            OutputFile out(temporary);
            std::int64_t asked = 0;
            for (std::int64_t written = 0; written < size;) {
                while (asked < size && parts.size() < parts_at_a_time) {
                    const auto bytes = std::min(part_bytes, size - asked);
                    parts.push_back(file->ReadAsync(asked, bytes));
                    asked += bytes;
                }
                const auto expected = std::min(part_bytes, size - written);
                const auto part = internal::require(parts.front().result(), "download", uri(path));
                parts.pop_front();
                require_all(part->size(), expected, "download", path);
                out.write(part->data(), static_cast<std::size_t>(part->size()));
                written += part->size();
            }
            std::filesystem::rename(temporary, local);
        } catch (...) {
            for (const auto& part : parts) {
                part.Wait();
            }
            std::error_code ignored;
            std::filesystem::remove(temporary, ignored);
            throw;
        }
    }

    void remove(const std::string& path) const {
        const auto info = internal::require(files_->GetFileInfo(path), "remove", uri(path));
        if (info.type() == arrow::fs::FileType::NotFound) {
            return;
        }
        const auto status = info.IsDirectory() ? files_->DeleteDir(path) : files_->DeleteFile(path);
        // Arrow reports what others removed meanwhile, or its own missing marker of a directory.
        if (!status.ok() && (!internal::is_absence(status) || exists(path))) {
            internal::throw_status(status, "remove", uri(path));
        }
    }

    [[nodiscard]] bool exists(const std::string& path) const {
        const auto info = internal::require(files_->GetFileInfo(path), "look for", uri(path));
        return info.IsFile() || (info.IsDirectory() && (has_directories_ || !list(path).empty()));
    }

private:
    static constexpr std::int64_t part_bytes = std::int64_t{16} << 20U;
    static constexpr int parts_at_a_time = 4;

    [[nodiscard]] std::string uri(const std::string& path) const { return scheme_ + "://" + path; }

    [[nodiscard]] std::shared_ptr<arrow::io::RandomAccessFile> open(const std::string& path,
                                                                    std::string_view action) const {
        return internal::require(files_->OpenInputFile(path), action, uri(path));
    }

    void require_all(std::int64_t read, std::int64_t expected, std::string_view action,
                     const std::string& path) const {
        if (read != expected) {
            throw TransientStorageError(
                "RT-S11", rtrain::detail::concat("cannot ", action, ' ', uri(path), ": ", read,
                                                 " bytes came instead of ", expected,
                                                 "; the file may have been replaced meanwhile"));
        }
    }

    /// An object appears when its stream is closed, a file of HDFS when it is created.
    template <class Write>
    void replace(const std::string& path, std::string_view action, Write&& write) const {
        const std::string target = has_directories_ ? temporary_beside(path).string() : path;
        const auto out = internal::require(files_->OpenOutputStream(target), action, uri(path));
        try {
            write(*out);
            // Parts that failed: Arrow could not take them back any more after a failed Close().
            internal::require(out->Flush(), action, uri(path));
            internal::require(out->Close(), action, uri(path));
            if (has_directories_) {
                remove(path);
                internal::require(files_->Move(target, path), action, uri(path));
            }
        } catch (...) {
            static_cast<void>(out->Abort()); // else its destructor would complete the object
            if (has_directories_) {
                static_cast<void>(files_->DeleteFile(target));
            }
            throw;
        }
    }

    std::shared_ptr<arrow::fs::FileSystem> files_;
    std::string scheme_;
    bool has_directories_;
};

static_assert(Filesystem<ArrowFilesystem>);

namespace internal {

/// The value of an option of a URI, else of the first environment variable that is set.
[[nodiscard]] inline std::string option(const Uri& uri, const std::string& key,
                                        std::initializer_list<const char*> variables = {}) {
    if (const auto found = uri.query.find(key); found != uri.query.end()) {
        return found->second;
    }
    for (const char* const variable : variables) {
        if (const char* const value = std::getenv(variable); value != nullptr && *value != 0) {
            return value;
        }
    }
    return "";
}

inline void require_options(const Uri& uri, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : uri.query) {
        if (std::ranges::find(known, key) == known.end() || value.find('@') != std::string::npos) {
            std::string names; // not `key`: it might be a secret
            for (const auto name : known) {
                names += (names.empty() ? "" : ", ") + std::string(name);
            }
            throw StorageError(
                "RT-S9", rtrain::detail::concat("a ", uri.scheme, "://", uri.authority, uri.path,
                                                "?... URI has an option that is unknown or holds "
                                                "user information; possible are ",
                                                names, "; credentials belong in the environment: ",
                                                credential_variables(uri.scheme)));
        }
    }
    if (uri.authority.empty() && uri.scheme != "hdfs") {
        throw StorageError("RT-S9", rtrain::detail::concat(uri.scheme, "://", uri.path,
                                                           " names no bucket; write ", uri.scheme,
                                                           "://bucket/path"));
    }
}

[[nodiscard]] inline Location open_s3(const Uri& uri, const TransferConfig& config) {
    require_options(uri, {"region", "endpoint_override", "scheme", "anonymous"});
    const std::string name = "s3://" + uri.authority + uri.path;
    std::string endpoint =
        option(uri, "endpoint_override", {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
    if (endpoint.find('@') != std::string::npos) { // of a URI, it was refused above
        throw StorageError(
            "RT-S8", rtrain::detail::concat("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL holds user "
                                            "information in front of its host, which errors of the "
                                            "service repeat; give credentials in ",
                                            credential_variables("s3")));
    }
    start_s3();
    auto options = option(uri, "anonymous") == "true" ? arrow::fs::S3Options::Anonymous()
                                                      : arrow::fs::S3Options::Defaults();
    if (const auto end = end_of_scheme(endpoint)) {
        options.scheme = endpoint.substr(0, *end);
        endpoint = endpoint.substr(*end + 3);
    }
    while (endpoint.ends_with('/')) {
        endpoint.pop_back();
    }
    options.endpoint_override = endpoint;
    if (const auto scheme = option(uri, "scheme"); !scheme.empty()) {
        options.scheme = scheme;
    }
    options.region = option(uri, "region", {"AWS_REGION", "AWS_DEFAULT_REGION"});
    if (options.region.empty()) {
        options.region = endpoint.empty() ? require(arrow::fs::ResolveS3BucketRegion(uri.authority),
                                                    "find the region of", name)
                                          : "us-east-1";
    }
    options.connect_timeout = std::min(config.request_timeout_s, 10.0);
    options.request_timeout = config.request_timeout_s;
    options.retry_strategy = std::make_shared<RequestRetries>(config);
    options.allow_delayed_open = true; // a small file in one request
    auto files = require(make_s3(options), "open", name);
    return {AnyFilesystem(ArrowFilesystem(std::move(files), "s3"), "s3"), uri.authority + uri.path};
}

/// Through Arrow's own reading of URIs. `extra` is "key=value&key=value".
[[nodiscard]] inline Location open_by_uri(const Uri& uri, const std::string& user,
                                          std::string extra) {
    const std::string name = uri.scheme + "://" + uri.authority + uri.path;
    for (const auto& [key, value] : uri.query) {
        if (key != "anonymous") {
            extra += (extra.empty() ? "" : "&") + key + "=" + value;
        }
    }
    std::string path;
    auto files =
        require(arrow::fs::FileSystemFromUri(uri.scheme + "://" + user + uri.authority + uri.path +
                                                 (extra.empty() ? "" : "?" + extra),
                                             &path),
                "open", name);
    return {AnyFilesystem(ArrowFilesystem(std::move(files), uri.scheme), uri.scheme), path};
}

[[nodiscard]] inline Location open_gs(const Uri& uri, const TransferConfig& config) {
    require_options(uri, {"endpoint_override", "scheme", "anonymous"});
    return open_by_uri(
        uri, option(uri, "anonymous") == "true" ? "anonymous@" : "",
        rtrain::detail::concat("retry_limit_seconds=", config.request_timeout_s * config.attempts));
}

[[nodiscard]] inline Location open_abfs(const Uri& uri, const TransferConfig&) {
    require_options(
        uri, {"blob_storage_authority", "dfs_storage_authority", "enable_tls", "credential_kind"});
    return open_by_uri(uri, "", "");
}

[[nodiscard]] inline Location open_hdfs(const Uri& uri, const TransferConfig&) {
    require_options(uri, {"user", "replication", "default_block_size"});
    return open_by_uri(uri, "", "");
}

inline const bool arrow_schemes = [] {
    register_scheme("s3", open_s3);
    for (const char* const scheme : {"gs", "gcs"}) {
        register_scheme(scheme, open_gs);
    }
    for (const char* const scheme : {"abfs", "abfss"}) {
        register_scheme(scheme, open_abfs);
    }
    for (const char* const scheme : {"hdfs", "viewfs"}) {
        register_scheme(scheme, open_hdfs);
    }
    return true;
}();

} // namespace internal
} // namespace rtrain::storage
