// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a zip file. Records that are found lie in it and do not claim more than it has.
#include "require.hpp"

#include <rtrain/format/zip_directory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

using namespace rtrain::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        std::uint64_t total = 0;
        const std::span file(reinterpret_cast<const char*>(data), size);
        for (const auto& [name, record] : parse_zip_directory(file)) {
            require(record.offset <= size && record.size <= size - record.offset,
                    "records lie in the file");
            total += record.size;
        }
        require(total <= size, "records are no larger than the file together");
    } catch (const std::invalid_argument&) {
    }
    return 0;
}
