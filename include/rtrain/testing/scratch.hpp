// SPDX-License-Identifier: Apache-2.0
/// Scratch directories and test data for conformance suites. Cost tier 0: std only.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>

#include <stdlib.h>

namespace rtrain::testing {

/// A new directory below the temporary one, removed recursively at the end.
class ScratchDirectory {
public:
    ScratchDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "rtrain-testing-XXXXXX");
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::system_error(errno, std::generic_category(), name);
        }
        path_ = name;
    }
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;
    ~ScratchDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
    std::filesystem::path path_;
};

/// Incompressible, non-repeating bytes, which hide no error.
[[nodiscard]] inline std::string noise(std::size_t bytes, unsigned int seed) {
    std::mt19937_64 random(seed);
    std::string text((bytes + 7) / 8 * 8, '\0');
    for (std::size_t at = 0; at < text.size(); at += 8) {
        const auto word = random();
        std::memcpy(&text[at], &word, 8);
    }
    text.resize(bytes);
    return text;
}

} // namespace rtrain::testing
