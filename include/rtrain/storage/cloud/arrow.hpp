// SPDX-License-Identifier: Apache-2.0
/// @file
/// S3 and compatible services (s3://), Google Cloud Storage (gs://), Azure (abfs://) and HDFS
/// (hdfs://), through Apache Arrow. Including this header registers them with locate(); the program
/// links rtrain::arrow. HDFS also needs a JVM and libhdfs at run time.
///
/// Credentials come from the service's usual sources (environment, files, the machine's role),
/// never from a URI. Options of a URI:
/// - s3: `region`, `endpoint_override` (host:port), `scheme` (https or http), `anonymous=true`;
///   defaults: AWS_REGION, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL.
/// - gs: `endpoint_override`, `scheme`, `anonymous=true`.
/// - abfs: `blob_storage_authority`, `dfs_storage_authority`, `enable_tls`, `credential_kind`.
/// - hdfs: `user`, `replication`, `default_block_size`.
/// @code
/// auto [files, path] = rtrain::storage::locate("s3://bucket/team?region=eu-central-1");
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/cloud/arrow_filesystem.hpp>
#include <rtrain/storage/cloud/arrow_s3.hpp>
#include <rtrain/storage/cloud/arrow_status.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::storage::internal {

/// Returns the value of a URI's option, or else of the first environment variable that is set.
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
                                                "?... URI has an option that is unknown or "
                                                "contains user information; the options are ",
                                                names, "; set credentials in the environment: ",
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
    if (endpoint.find('@') != std::string::npos) { // in a URI it was rejected above
        throw StorageError(
            "RT-S8", rtrain::detail::concat(
                         "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL contains user information before "
                         "its host, which the service's errors repeat; set credentials in ",
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

/// Percent-encodes text for parse_uri(). Leaves `kept` and unreserved characters as they are.
[[nodiscard]] inline std::string percent_encoded(std::string_view text, std::string_view kept) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string encoded;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x80 && std::isalnum(byte) != 0) || kept.find(c) != std::string_view::npos) {
            encoded += c;
        } else {
            encoded += {'%', digits[byte >> 4U], digits[byte & 15U]};
        }
    }
    return encoded;
}

/// Opens through Arrow's URI parser.
[[nodiscard]] inline Location open_by_uri(const Uri& uri, const std::string& user,
                                          const std::map<std::string, std::string>& options) {
    const std::string name = uri.scheme + "://" + uri.authority + uri.path;
    std::string text =
        uri.scheme + "://" + user + uri.authority + percent_encoded(uri.path, "/-._~");
    char before = '?';
    for (const auto& [key, value] : options) {
        text += before + key + "=" + percent_encoded(value, "-._~");
        before = '&';
    }
    std::string path;
    auto files = require(arrow::fs::FileSystemFromUri(text, &path), "open", name);
    return {AnyFilesystem(ArrowFilesystem(std::move(files), uri.scheme), uri.scheme), path};
}

[[nodiscard]] inline Location open_gs(const Uri& uri, const TransferConfig& config) {
    require_options(uri, {"endpoint_override", "scheme", "anonymous"});
    auto options = uri.query;
    options.erase("anonymous");
    options["retry_limit_seconds"] =
        rtrain::detail::concat(config.request_timeout_s * config.attempts);
    return open_by_uri(uri, option(uri, "anonymous") == "true" ? "anonymous@" : "", options);
}

[[nodiscard]] inline Location open_abfs(const Uri& uri, const TransferConfig&) {
    require_options(
        uri, {"blob_storage_authority", "dfs_storage_authority", "enable_tls", "credential_kind"});
    return open_by_uri(uri, "", uri.query);
}

[[nodiscard]] inline Location open_hdfs(const Uri& uri, const TransferConfig&) {
    require_options(uri, {"user", "replication", "default_block_size"});
    return open_by_uri(uri, "", uri.query);
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

} // namespace rtrain::storage::internal
