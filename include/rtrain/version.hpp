// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers; CMakeLists.txt reads it from here.
#pragma once

#define RTRAIN_VERSION_MAJOR 0
#define RTRAIN_VERSION_MINOR 1
#define RTRAIN_VERSION_PATCH 0
#define RTRAIN_VERSION "0.1.0"
