// SPDX-License-Identifier: Apache-2.0
/// @file
/// Location: a path on a file system.
#pragma once

#include <rtrain/storage/filesystem.hpp>

#include <string>

namespace rtrain::storage {

/// A file or directory on a file system.
struct Location {
    AnyFilesystem filesystem;
    std::string path;
};

} // namespace rtrain::storage
