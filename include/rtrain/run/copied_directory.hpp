// SPDX-License-Identifier: Apache-2.0
/// @file
/// CopiedDirectory: a reported directory that is deleted once its checkpoint is committed.
#pragma once

#include <rtrain/base/console.hpp>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

namespace rtrain {

class CopiedDirectory {
public:
    /// Empty: nothing to delete.
    void set(std::optional<std::filesystem::path> directory) { directory_ = std::move(directory); }

    /// Only warns about files that it cannot delete; training continues.
    void remove() noexcept {
        if (const auto directory = std::exchange(directory_, std::nullopt)) {
            std::error_code error;
            std::filesystem::remove_all(*directory, error);
            if (error) {
                console::warn("could not delete %s: %s", directory->c_str(),
                              error.message().c_str());
            }
        }
    }

private:
    std::optional<std::filesystem::path> directory_;
};

} // namespace rtrain
