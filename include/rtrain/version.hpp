// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers; CMakeLists.txt reads it from here.
#pragma once

/// Raised by what breaks programs, from 1.0 on.
#define RTRAIN_VERSION_MAJOR 0
/// Raised by what is new; before 1.0, also by what breaks programs.
#define RTRAIN_VERSION_MINOR 1
/// Raised by corrections.
#define RTRAIN_VERSION_PATCH 0
/// All three, with dots.
#define RTRAIN_VERSION "0.1.0"
