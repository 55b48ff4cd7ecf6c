// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target where there is no libFuzzer: first every file of its corpus, then so many
// mutations of them, the same for the same seed. The input of a finding is left in "finding".
// Usage: TARGET DIRECTORY INPUTS SEED
#include "require.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

std::string input;

void keep_input() {
    if (std::FILE* const file = std::fopen("finding", "wb")) {
        std::fwrite(input.data(), 1, input.size(), file);
        std::fclose(file);
    }
}

void run() {
    // As large as the input, so that AddressSanitizer sees a byte beyond it.
    const std::vector<std::uint8_t> exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

class Mutator {
public:
    Mutator(const std::vector<std::string>& corpus, std::uint64_t seed)
        : corpus_(corpus), random_(seed) {}

    std::string next() {
        std::string text = pick();
        for (std::size_t count = below(4) + 1; count > 0; --count) {
            change(text);
        }
        return text;
    }

private:
    void change(std::string& text) {
        const std::size_t place = below(text.size() + 1);
        switch (below(7)) {
        case 0:
            if (place < text.size()) {
                text[place] = static_cast<char>(text[place] ^ (1 << below(8)));
            }
            break;
        case 1:
            if (place < text.size()) {
                text[place] = static_cast<char>(below(256));
            }
            break;
        case 2:
            text.insert(place, 1, static_cast<char>(below(256)));
            break;
        case 3:
            text.erase(place, below(8) + 1);
            break;
        case 4: { // a part of another input, over or between
            const std::string& other = pick();
            const std::string part = other.substr(below(other.size() + 1), below(32));
            text.replace(place, below(2) == 0 ? 0 : part.size(), part);
            break;
        }
        case 5: { // a number becomes another one
            const std::size_t digit = text.find_first_of("0123456789", place);
            if (digit != std::string::npos) {
                const std::size_t end = text.find_first_not_of("0123456789", digit);
                static const std::vector<std::string> numbers{"0",
                                                              "-1",
                                                              "1.5",
                                                              "1e9",
                                                              "4294967296",
                                                              "9223372036854775807",
                                                              "18446744073709551615"};
                text.replace(digit, end == std::string::npos ? end : end - digit,
                             numbers[below(numbers.size())]);
            }
            break;
        }
        default:
            if (place + 8 <= text.size()) { // all bits set, or none
                text.replace(place, std::size_t{1} << below(4), std::size_t{1} << below(4),
                             below(2) == 0 ? '\xFF' : '\0');
            }
        }
    }
    std::size_t below(std::size_t limit) { return random_() % limit; }
    const std::string& pick() { return corpus_[below(corpus_.size())]; }

    const std::vector<std::string>& corpus_;
    std::mt19937_64 random_;
};

} // namespace

int main(int argc, char** argv) {
    require(argc == 4, "three arguments are given");
    const std::uint64_t inputs = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);
    __sanitizer_set_death_callback(keep_input);
    std::signal(SIGABRT, [](int signal) {
        keep_input();
        std::signal(signal, SIG_DFL);
        std::raise(signal);
    });
    std::vector<std::string> corpus;
    for (const auto& item : std::filesystem::directory_iterator(argv[1])) {
        std::ifstream file(item.path(), std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    require(!corpus.empty(), "there is a corpus");
    std::sort(corpus.begin(), corpus.end()); // not as the directory has them
    for (const auto& text : corpus) {
        input = text;
        run();
    }
    Mutator mutator(corpus, seed);
    for (std::uint64_t i = 0; i < inputs; ++i) {
        input = mutator.next();
        run();
    }
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    std::printf("%zu inputs, %ld MiB\n", corpus.size() + inputs, usage.ru_maxrss / 1024);
    require(usage.ru_maxrss < 512L * 1024, "memory stays below 512 MiB");
}
