// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers; CMakeLists.txt reads it from here.
#pragma once

/// Incremented for breaking changes, from 1.0 on.
#define RTRAIN_VERSION_MAJOR 0
/// Incremented for new features; before 1.0, also for breaking changes.
#define RTRAIN_VERSION_MINOR 1
/// Incremented for fixes.
#define RTRAIN_VERSION_PATCH 0
/// All three, with dots.
#define RTRAIN_VERSION "0.1.0"
