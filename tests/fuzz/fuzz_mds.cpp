// SPDX-License-Identifier: Apache-2.0
// Any bytes, as an index.json, as the beginning of a shard, and as a sample.
#include "require.hpp"

#include <rtrain/format/mds.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

using namespace rtrain::format;

namespace {

void read_index(std::string_view text) {
    for (const MdsShard& shard : parse_mds_index(text)) {
        require(shard.samples >= 0 && !shard.columns.empty(), "a shard has samples and columns");
        require(shard.name.find("..") != 0 && !shard.name.starts_with('/'),
                "it is in the directory");
        for (const MdsColumn& column : shard.columns) {
            try {
                const MdsType type = mds_type(column);
                require(type.bytes == 0 || type.bytes == column.size,
                        "a type has the column's size");
            } catch (const std::invalid_argument&) { // an encoding that is not read
            }
        }
    }
}

void read_offsets(std::string_view table) {
    const auto samples = static_cast<std::int64_t>(mds::number_at(table, 0));
    const std::uint64_t bytes = table.size() + 1000;
    const auto offsets = mds_offsets(table, samples, bytes);
    require(offsets.size() == static_cast<std::size_t>(samples) + 1, "each sample has an end");
    require(std::ranges::is_sorted(offsets) && offsets.back() <= bytes, "samples are in the file");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    try {
        read_index(input);
    } catch (const std::invalid_argument&) { // no index
    }
    try {
        if (size >= 4) {
            read_offsets(input);
        }
    } catch (const std::invalid_argument&) { // no shard
    }
    const std::vector<MdsColumn> columns{{.name = "a", .encoding = "str"},
                                         {.name = "b", .encoding = "int", .size = 8},
                                         {.name = "c", .encoding = "bytes"}};
    try {
        std::vector<std::string_view> values;
        split_mds_sample(input, columns, values);
        require(values.size() == 3 && values[1].size() == 8, "a sample has its columns");
        require(8 + values[0].size() + 8 + values[2].size() == size, "which fill it");
    } catch (const std::invalid_argument&) { // no sample
    }
    return 0;
}
