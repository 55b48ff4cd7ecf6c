// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts Arrow's errors to rtrain's: transient or not, with advice, and without keys.
#pragma once

#include <rtrain/base/error.hpp>

#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::storage::internal {

/// Returns Arrow's text with all keys from the environment removed.
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

/// Throws the error of an Arrow call. Errors not known to be permanent count as transient.
[[noreturn]] inline void throw_status(const arrow::Status& status, std::string_view action,
                                      const std::string& uri) {
    std::string text = without_keys(status.message());
    text.resize(std::min(text.find('\n'), text.size())); // HDFS lists every path it searched
    const auto error = [&](std::string_view advice) {
        return rtrain::detail::concat("cannot ", action, ' ', uri, ": ", text, "; ", advice);
    };
    if (contains_any(text, {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH",
                            "INVALID_CLIENT_TOKEN_ID", "UNRECOGNIZED_CLIENT", "EXPIRED_TOKEN",
                            "InvalidAccessKeyId", "SignatureDoesNotMatch", "HTTP status 401",
                            "HTTP status 403", "Permission denied", "PERMISSION_DENIED",
                            "UNAUTHENTICATED", "Could not create a OAuth2"})) {
        throw StorageError("RT-S10", error("check the credentials in the environment of every "
                                           "rank, and their permissions"));
    }
    if (is_absence(status)) {
        throw StorageError("RT-S10",
                           error("check the bucket and the path; rtrain does not create buckets"));
    }
    if (status.IsInvalid() || status.IsNotImplemented() || status.IsTypeError() ||
        contains_any(text, {"HTTP status 400", "HTTP status 301", "INVALID_ARGUMENT",
                            "Unable to load lib"})) {
        throw StorageError("RT-S10", error("correct the URI or the installation"));
    }
    throw TransientStorageError("RT-S11",
                                error("the service may be overloaded or unreachable; check its "
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

} // namespace rtrain::storage::internal
