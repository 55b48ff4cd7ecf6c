// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <rtrain/storage/local.hpp>
#include <rtrain/testing/filesystem.hpp>

struct OnDisk : rtrain::storage::Local {};

RTRAIN_TEST_FILESYSTEM(OnDisk, "scratch", OnDisk{});
