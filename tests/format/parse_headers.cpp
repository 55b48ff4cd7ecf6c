// SPDX-License-Identifier: Apache-2.0
// Reads safetensors files from stdin, each behind its size in 8 bytes. Prints for each a line:
// "ok", or what is wrong with it.
#include <rtrain/format/safetensors_header.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>

int main() {
    std::uint64_t size = 0;
    std::string file;
    while (std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) {
        file.resize(size);
        std::cin.read(file.data(), static_cast<std::streamsize>(size));
        std::string verdict = "ok";
        try {
            (void)rtrain::checkpoint::parse_safetensors_header(file);
        } catch (const std::invalid_argument& error) {
            verdict = error.what();
        }
        std::replace(verdict.begin(), verdict.end(), '\n', ' ');
        std::cout << verdict << '\n';
    }
}
