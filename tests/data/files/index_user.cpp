// SPDX-License-Identifier: Apache-2.0
// usage: storage_index_user DIRECTORY
// Indexes the files there. Prints the name of each file that it reads for that, and reads it when a
// line comes in; at last, what all indices have together.
#include <rtrain/base/error.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>

int main(int, char** argv) {
    using namespace rtrain;
    try {
        const auto files = data::list_files(argv[1]);
        const auto make = [](const storage::RandomAccessFile& file) {
            std::puts(std::filesystem::path(file.path()).filename().c_str());
            std::fflush(stdout);
            for (int c = std::getchar(); c != '\n' && c != EOF;) {
                c = std::getchar();
            }
            return data::index_lines(file, {});
        };
        std::uint64_t digest = 0;
        std::int64_t rows = 0;
        for (const auto& index : data::index_files(files, "lines", make)) {
            digest = digest * 31 + index->content;
            for (const data::FileBlock& block : index->blocks) {
                rows += block.rows;
            }
        }
        std::printf("%lld rows, %llx\n", static_cast<long long>(rows),
                    static_cast<unsigned long long>(digest));
    } catch (const Error& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
