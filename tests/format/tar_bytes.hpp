// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tar archives, byte by byte.
#pragma once

#include <rtrain/storage/file/file.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace test {

/// The header of a file in a tar archive, and its bytes.
inline std::string tar_file(const std::string& name, const std::string& content, char type = '0',
                            const std::string& size = "") {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) {
        header.replace(at, text.size(), text);
    };
    std::array<char, 16> octal{};
    std::snprintf(octal.data(), octal.size(), "%011zo", content.size());
    put(0, name.substr(0, 100));
    put(100, "0000644");
    put(124, size.empty() ? octal.data() : size);
    put(148, "        ");
    header[156] = type;
    put(257, std::string("ustar\0", 6) + "00");
    std::uint32_t sum = 0;
    for (const char byte : header) {
        sum += static_cast<unsigned char>(byte);
    }
    std::snprintf(octal.data(), octal.size(), "%06o", sum);
    put(148, octal.data());
    return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline const std::string tar_end(1024, '\0');

} // namespace test
