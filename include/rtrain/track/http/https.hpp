// SPDX-License-Identifier: Apache-2.0
/// @file
/// https(): TLS connections for trackers, with OpenSSL. Part of the component https: the program
/// links rtrain::https. Guide: docs/https.md.
///
/// @code
/// rtrain::track::MlFlow({.uri = "https://mlflow.example.org", .https = rtrain::track::https()});
/// @endcode
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/track/http/http_exchange.hpp>
#include <rtrain/track/http/http_message.hpp>
#include <rtrain/track/http/url.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace rtrain::track {

/// Certificate verification.
struct HttpsOptions {
    /// Trusted certificate authorities: a PEM file, or a directory created by `openssl rehash`. "":
    /// MLFLOW_TRACKING_SERVER_CERT_PATH, else the defaults of this machine (SSL_CERT_FILE and
    /// SSL_CERT_DIR, else the system's store).
    std::filesystem::path authorities{};
    /// False, or MLFLOW_TRACKING_INSECURE_TLS=true: accepts any certificate, so a man in the middle
    /// can read everything, credentials included.
    bool verify = true;
};

namespace internal {

/// State shared by all connections.
struct Tls {
    boost::asio::ssl::context context{boost::asio::ssl::context::tls_client};
    bool verifies = true;
    std::once_flag has_warned;
};

class TlsConnection {
public:
    TlsConnection(boost::asio::io_context& io, const Url& server, Tls& tls)
        : server_(server), stream_(io, tls.context) {
        SSL* const ssl = stream_.native_handle();
        boost::system::error_code is_name;
        (void)boost::asio::ip::make_address(server.host, is_name);
        bool done = true;
        if (is_name) {
            std::string name = server.host; // OpenSSL's macro uses a C-style cast
            done = SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                            name.data()) == 1;
        }
        if (tls.verifies) {
            SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
            done = done && (is_name ? SSL_set1_host(ssl, server.host.c_str())
                                    : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl),
                                                                    server.host.c_str())) == 1;
        }
        if (!done) {
            throw no_answer(server, "the host name is not valid for TLS");
        }
    }

    [[nodiscard]] Tcp::socket& socket() noexcept { return stream_.next_layer(); }
    [[nodiscard]] auto& stream() noexcept { return stream_; }
    template <class Done>
    void agree(Done done) {
        stream_.async_handshake(boost::asio::ssl::stream_base::client,
                                [this, done](const HttpCode& code) { done(error_of(code)); });
    }

private:
    [[nodiscard]] std::optional<Error> error_of(const HttpCode& code) {
        if (!code) {
            return std::nullopt;
        }
        const long verdict = SSL_get_verify_result(stream_.native_handle());
        if (verdict != X509_V_OK) {
            return no_answer(server_,
                             rtrain::detail::concat("the certificate is not trusted: ",
                                                    X509_verify_cert_error_string(verdict)),
                             "RT-V68");
        }
        return no_answer(server_, "the TLS handshake failed: " + code.message() +
                                      "; check that the server offers https on this port, "
                                      "with TLS 1.2 or later");
    }

    const Url& server_;
    boost::asio::ssl::stream<Tcp::socket> stream_;
};

/// The value of a variable, parsed as MLflow does. Throws ConfigError [RT-V67].
[[nodiscard]] inline bool is_true(const char* variable) {
    const char* const value = std::getenv(variable);
    std::string text = value != nullptr ? value : "";
    std::ranges::transform(text, text.begin(), rtrain::detail::lower);
    if (!text.empty() && text != "true" && text != "1" && text != "false" && text != "0") {
        throw ConfigError("RT-V67", rtrain::detail::concat(variable, " is \"", value,
                                                           "\"; expected true or false"));
    }
    return text == "true" || text == "1";
}

/// Loads the trusted certificates. Throws ConfigError [RT-V67].
inline void trust(boost::asio::ssl::context& context, const std::filesystem::path& authorities) {
    HttpCode code;
    if (authorities.empty()) {
        context.set_default_verify_paths(code);
    } else if (std::filesystem::is_directory(authorities)) {
        context.add_verify_path(authorities.string(), code);
    } else {
        context.load_verify_file(authorities.string(), code);
    }
    if (code) {
        throw ConfigError("RT-V67",
                          rtrain::detail::concat(
                              "the trusted certificates cannot be read from ",
                              authorities.empty() ? "the system's store" : authorities.string(),
                              ": ", code.message(), "; expected a PEM file of certificates"));
    }
}

} // namespace internal

/// An HttpSender for https://... servers: TLS 1.2 or later, with a certificate that a trusted
/// authority signed and that names the host. Reads the environment now; throws ConfigError [RT-V67]
/// if it is invalid. Copies share what was read.
[[nodiscard]] inline HttpSender https(const HttpsOptions& options = {}) {
    // A thread that waits for a server can outlive main(), and OpenSSL's atexit cleanup would race
    // with it.
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
    const char* const variable = std::getenv("MLFLOW_TRACKING_SERVER_CERT_PATH");
    const std::filesystem::path authorities =
        options.authorities.empty() && variable != nullptr ? variable : options.authorities;
    const auto tls = std::make_shared<internal::Tls>();
    tls->verifies = options.verify && !internal::is_true("MLFLOW_TRACKING_INSECURE_TLS");
    if (!tls->verifies && !authorities.empty()) {
        throw ConfigError("RT-V67", "certificate verification is disabled, but the authorities " +
                                        authorities.string() +
                                        " are set; set either HttpsOptions::authorities or "
                                        "MLFLOW_TRACKING_SERVER_CERT_PATH, or verify = false or "
                                        "MLFLOW_TRACKING_INSECURE_TLS");
    }
    SSL_CTX_set_min_proto_version(tls->context.native_handle(), TLS1_2_VERSION);
    if (tls->verifies) {
        tls->context.set_verify_mode(boost::asio::ssl::verify_peer);
        internal::trust(tls->context, authorities);
    } else {
        tls->context.set_verify_mode(boost::asio::ssl::verify_none);
    }
    return [tls](const Url& server, const HttpRequest& request) {
        if (!tls->verifies) {
            std::call_once(tls->has_warned, [&] {
                console::warn("the certificate of %s is not verified, because the program or "
                              "MLFLOW_TRACKING_INSECURE_TLS disables it; a man in the middle can "
                              "read and change everything",
                              server.text().c_str());
            });
        }
        return internal::HttpExchange<internal::TlsConnection>(server, request, *tls).run();
    };
}

} // namespace rtrain::track
