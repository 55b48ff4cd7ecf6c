// SPDX-License-Identifier: Apache-2.0
/// @file
/// Resolves a path or URI to a file system and the path in it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/location.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::storage {

/// Parts of "scheme://authority/path?key=value&key=value". Values and path are decoded.
struct Uri {
    std::string scheme;                       ///< lower case
    std::string authority;                    ///< a host or a bucket; may be empty
    std::string path;                         ///< with its leading '/', without a trailing one
    std::map<std::string, std::string> query; ///< unique keys
};

/// Opens a file system for a URI of its scheme. The URI contains no user information.
using OpenScheme = std::function<Location(const Uri& uri, const TransferConfig& config)>;

namespace internal {

[[nodiscard]] inline std::string percent_decoded(std::string_view text) {
    std::string decoded;
    for (std::size_t at = 0; at < text.size(); ++at) {
        unsigned int code = 0;
        if (text[at] == '%' && at + 2 < text.size() &&
            std::from_chars(&text[at + 1], &text[at + 1] + 2, code, 16).ptr == &text[at + 1] + 2) {
            decoded += static_cast<char>(code);
            at += 2;
        } else {
            decoded += text[at];
        }
    }
    return decoded;
}

/// Returns the position of "://" after a scheme; nullopt for a path.
[[nodiscard]] inline std::optional<std::size_t> end_of_scheme(std::string_view text) {
    const auto end = text.find("://");
    const auto fits = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
    };
    if (end == std::string_view::npos || end == 0 ||
        !std::ranges::all_of(text.substr(0, end), fits)) {
        return std::nullopt;
    }
    return end;
}

/// Returns where to set credentials instead of in the URI.
[[nodiscard]] inline std::string_view credential_variables(std::string_view scheme) {
    if (scheme == "s3") {
        return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    }
    if (scheme == "gs" || scheme == "gcs") {
        return "GOOGLE_APPLICATION_CREDENTIALS";
    }
    if (scheme == "abfs" || scheme == "abfss") {
        return "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET";
    }
    if (scheme == "hdfs" || scheme == "viewfs") {
        return "HADOOP_USER_NAME";
    }
    return "the service's own variables";
}

/// True if the authority may contain a name or key. A key can contain '/', so that its second half
/// is in the path: a ':' without a port reveals this.
[[nodiscard]] inline bool has_user_information(std::string_view scheme,
                                               std::string_view authority) {
    const auto colon = authority.find(':');
    if (scheme == "abfs" || scheme == "abfss") { // container@account
        return colon != std::string_view::npos;
    }
    if (authority.find('@') != std::string_view::npos) {
        return true;
    }
    if (colon == std::string_view::npos) {
        return false;
    }
    return scheme == "s3" || scheme == "gs" || scheme == "gcs" || // a bucket has no port
           !std::ranges::all_of(authority.substr(colon + 1),
                                [](char c) { return c >= '0' && c <= '9'; });
}

struct Schemes {
    std::mutex mutex;
    std::map<std::string, OpenScheme, std::less<>> open;

    static Schemes& instance() {
        static Schemes schemes;
        return schemes;
    }
};

[[noreturn]] inline void throw_unknown_scheme(const std::string& scheme) {
    for (const std::string_view known : {"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"}) {
        if (scheme == known) {
            throw StorageError(
                "RT-S9",
                detail::concat(
                    scheme, "://... needs rtrain's component arrow: in CMake, find_package(rtrain "
                            "COMPONENTS arrow) and link rtrain::arrow; in the program, #include "
                            "<rtrain/storage/arrow.hpp>"));
        }
    }
    throw StorageError(
        "RT-S9", detail::concat("no file system is registered for ", scheme,
                                "://...; register one with rtrain::storage::register_scheme, or "
                                "check the spelling"));
}

} // namespace internal

/// Splits a URI. Throws StorageError [RT-S8] if it contains user information, which might be a key
/// and is not in the message.
[[nodiscard]] inline Uri parse_uri(std::string_view text) {
    const auto end = internal::end_of_scheme(text);
    if (!end) {
        throw StorageError("RT-S9", "a URI must begin with a scheme, such as s3://");
    }
    Uri uri;
    for (const char c : text.substr(0, *end)) {
        uri.scheme += rtrain::detail::lower(c);
    }
    text.remove_prefix(*end + 3);
    const auto query = text.find('?');
    const auto place = text.substr(0, query);
    const auto slash = std::min(place.find('/'), place.size());
    uri.authority = place.substr(0, slash);
    if (internal::has_user_information(uri.scheme, uri.authority)) {
        throw StorageError(
            "RT-S8",
            detail::concat("a ", uri.scheme,
                           "://... URI contains user information before its host; URIs end up in "
                           "logs and files, so set credentials in the environment variables ",
                           internal::credential_variables(uri.scheme)));
    }
    uri.path = internal::percent_decoded(place.substr(slash));
    while (uri.path.ends_with('/')) {
        uri.path.pop_back();
    }
    for (auto rest = query == std::string_view::npos ? "" : text.substr(query + 1);
         !rest.empty();) {
        const auto length = std::min(rest.find('&'), rest.size());
        const auto pair = rest.substr(0, length);
        const auto equals = std::min(pair.find('='), pair.size());
        uri.query[std::string(pair.substr(0, equals))] =
            internal::percent_decoded(pair.substr(std::min(equals + 1, pair.size())));
        rest.remove_prefix(std::min(length + 1, rest.size()));
    }
    return uri;
}

/// Registers `scheme` with locate(), for example "memory". A later call replaces an earlier one.
inline void register_scheme(std::string scheme, OpenScheme open) {
    auto& schemes = internal::Schemes::instance();
    const std::scoped_lock lock(schemes.mutex);
    schemes.open[std::move(scheme)] = std::move(open);
}

/// Returns the file system of a path ("results", "/nfs/results"), of "file:///results", or of a URI
/// with a registered scheme. storage/cloud/arrow.hpp registers s3, gs, hdfs and abfs. `config`
/// limits the requests of that file system. Throws StorageError: RT-S8 for user information in the
/// URI, RT-S9 for an unknown scheme or an invalid URI.
[[nodiscard]] inline Location locate(const std::filesystem::path& path_or_uri,
                                     const TransferConfig& config = {}) {
    const std::string text = path_or_uri.string();
    if (!internal::end_of_scheme(text)) {
        return {Local{}, text};
    }
    const Uri uri = parse_uri(text);
    if (uri.scheme == "file") {
        if (!uri.authority.empty() && uri.authority != "localhost") {
            throw StorageError(
                "RT-S9", detail::concat("file:// takes an absolute path of this machine, as in "
                                        "file:///results, but names the host ",
                                        uri.authority));
        }
        return {Local{}, uri.path.empty() ? "/" : uri.path};
    }
    OpenScheme open;
    {
        auto& schemes = internal::Schemes::instance();
        const std::scoped_lock lock(schemes.mutex);
        const auto found = schemes.open.find(uri.scheme);
        if (found != schemes.open.end()) {
            open = found->second;
        }
    }
    if (!open) {
        internal::throw_unknown_scheme(uri.scheme);
    }
    return open(uri, config);
}

} // namespace rtrain::storage
