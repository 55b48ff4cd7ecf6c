// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include "services.hpp"

#include <doctest/doctest.h>

int main(int argc, char** argv) {
    // The credentials of the tests' service; no request may go to a real one.
    ::setenv("AWS_ACCESS_KEY_ID", test::canary_id.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", test::canary_key.c_str(), 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    for (const char* const name : {"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
                                   "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "http_proxy"}) {
        ::unsetenv(name);
    }
    return doctest::Context(argc, argv).run();
}
