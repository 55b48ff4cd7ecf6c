// SPDX-License-Identifier: Apache-2.0
/// @file
/// Doors: headers that declare non-template code, and include its definitions at their end.
///
/// A program that links rtrain::rtrain compiles the definitions in each of its sources. One that
/// links rtrain::compiled, which defines RTRAIN_COMPILED, sees declarations only; the definitions
/// were compiled once, into that library.
#pragma once

/// Precedes each definition behind a door.
#ifdef RTRAIN_COMPILED
#define RTRAIN_DOOR
#else
#define RTRAIN_DOOR inline
#endif
