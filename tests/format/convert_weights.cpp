// SPDX-License-Identifier: Apache-2.0
// Reads lines "FROM<tab>TO" and writes the weights of each FROM to TO. Prints for each a line:
// "ok", or the error.
#include <rtrain/format/safetensors.hpp>
#include <rtrain/weights.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

int main() {
    namespace weights = rtrain::weights;
    for (std::string line; std::getline(std::cin, line);) {
        std::string verdict = "ok";
        try {
            const std::size_t tab = line.find('\t');
            const auto tensors = weights::read(line.substr(0, tab));
            const std::filesystem::path to = line.substr(tab + 1);
            if (weights::format_of(to) == weights::Format::torch) {
                rtrain::checkpoint::write_torch_file(to, tensors);
            } else {
                rtrain::checkpoint::safetensors::write(to, tensors);
            }
        } catch (const std::exception& error) {
            verdict = error.what();
        }
        std::replace(verdict.begin(), verdict.end(), '\n', ' ');
        std::cout << verdict << '\n' << std::flush;
    }
}
