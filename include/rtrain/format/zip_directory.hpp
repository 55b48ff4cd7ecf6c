// SPDX-License-Identifier: Apache-2.0
/// @file
/// Locates the records of a zip file written by torch.save. libtorch's reader trusts the sizes in a
/// file and unpacks compressed records; this one uses only memory for the directory, whatever the
/// file claims. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/plain_text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// One file in a zip file.
struct ZipRecord {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    /// CRC-32 of its bytes; 0 if the writer omitted it.
    std::uint32_t crc = 0;
    /// False if the bytes are compressed or encrypted.
    bool stored = true;
};

using ZipDirectory = std::map<std::string, ZipRecord, std::less<>>;

namespace zip {

inline constexpr std::size_t end_size = 22;
inline constexpr std::size_t locator_size = 20;
inline constexpr std::size_t end64_size = 56;
inline constexpr std::size_t entry_size = 46;
inline constexpr std::size_t local_size = 30;
inline constexpr std::uint64_t in_extra = 0xFFFFFFFF;

/// Reads little-endian numbers and strings at offsets of a file. Throws std::invalid_argument
/// beyond its end.
class Reader {
public:
    explicit Reader(std::span<const char> file) : file_(file) {}

    [[nodiscard]] std::string_view text(std::uint64_t place, std::uint64_t size) const {
        if (place > file_.size() || size > file_.size() - place) {
            throw std::invalid_argument("its directory points beyond its end");
        }
        return {file_.data() + place, static_cast<std::size_t>(size)};
    }
    [[nodiscard]] std::uint64_t number(std::uint64_t place, std::size_t bytes) const {
        std::uint64_t value = 0;
        unsigned shift = 0;
        for (const char byte : text(place, bytes)) {
            value |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
            shift += 8;
        }
        return value;
    }
    [[nodiscard]] std::uint64_t size() const { return file_.size(); }

private:
    std::span<const char> file_;
};

/// Offset, size and number of entries of the directory.
struct Extent {
    std::uint64_t begin, size, entries;
};

[[nodiscard]] inline Extent find_directory(const Reader& file) {
    constexpr std::uint64_t longest_comment = 0xFFFF;
    if (file.size() < end_size) {
        throw std::invalid_argument("it is not a zip file");
    }
    std::uint64_t end = file.size() - end_size;
    const std::uint64_t first = end - std::min(end, longest_comment);
    while (file.text(end, 4) != "PK\5\6") {
        if (end-- == first) {
            throw std::invalid_argument("it is not a zip file, or is truncated");
        }
    }
    if (end < locator_size || file.text(end - locator_size, 4) != "PK\6\7") {
        return {file.number(end + 16, 4), file.number(end + 12, 4), file.number(end + 10, 2)};
    }
    const std::uint64_t end64 = file.number(end - locator_size + 8, 8);
    if (file.text(end64, end64_size).substr(0, 4) != "PK\6\6") {
        throw std::invalid_argument("its directory is damaged");
    }
    return {file.number(end64 + 48, 8), file.number(end64 + 40, 8), file.number(end64 + 32, 8)};
}

/// Replaces the `values`, sizes and an offset, that did not fit into 32 bits.
inline void read_extra(const Reader& file, std::uint64_t place, std::uint64_t end,
                       std::initializer_list<std::uint64_t*> values) {
    while (end - place >= 4) {
        const std::uint64_t field = file.number(place, 2);
        const std::uint64_t field_end = place + 4 + file.number(place + 2, 2);
        place += 4;
        if (field_end > end) {
            break;
        }
        if (field == 1) {
            for (std::uint64_t* const value : values) {
                if (*value == in_extra && field_end - place >= 8) {
                    *value = file.number(place, 8);
                    place += 8;
                }
            }
            return;
        }
        place = field_end;
    }
}

/// Extent of a record, including its header.
struct Place {
    std::uint64_t begin, end;
    std::string_view name;
};

inline void require_apart(std::vector<Place> places) {
    std::ranges::sort(places, {}, &Place::begin);
    const auto found = std::ranges::adjacent_find(
        places, [](const Place& one, const Place& next) { return one.end > next.begin; });
    if (found != places.end()) {
        throw std::invalid_argument("record \"" + std::string(std::next(found)->name) +
                                    "\" overlaps another");
    }
}

} // namespace zip

/// Reads the directory of a zip file. Throws std::invalid_argument if the file is not a valid zip
/// file, has overlapping records, or two records of the same name.
[[nodiscard]] inline ZipDirectory parse_zip_directory(std::span<const char> bytes) {
    const zip::Reader file(bytes);
    const zip::Extent extent = zip::find_directory(file);
    (void)file.text(extent.begin, extent.size);
    ZipDirectory records;
    std::vector<zip::Place> places;
    std::uint64_t place = extent.begin;
    for (std::uint64_t i = 0; i < extent.entries; ++i) {
        if (file.text(place, zip::entry_size).substr(0, 4) != "PK\1\2") {
            throw std::invalid_argument("its directory is damaged");
        }
        const std::uint64_t name_size = file.number(place + 28, 2);
        const std::uint64_t extra_size = file.number(place + 30, 2);
        std::uint64_t packed = file.number(place + 20, 4);
        ZipRecord record;
        record.crc = static_cast<std::uint32_t>(file.number(place + 16, 4));
        record.size = file.number(place + 24, 4);
        std::uint64_t local = file.number(place + 42, 4);
        const std::string name(file.text(place + zip::entry_size, name_size));
        const std::uint64_t extra = place + zip::entry_size + name_size;
        (void)file.text(extra, extra_size);
        zip::read_extra(file, extra, extra + extra_size, {&record.size, &packed, &local});
        if (!is_plain_text(name)) {
            throw std::invalid_argument("a record's name has control characters or is not UTF-8");
        }
        record.stored = file.number(place + 10, 2) == 0 && (file.number(place + 8, 2) & 1U) == 0 &&
                        packed == record.size;
        record.size = packed;
        if (file.text(local, zip::local_size).substr(0, 4) != "PK\3\4") {
            throw std::invalid_argument("record \"" + name + "\" is damaged");
        }
        record.offset =
            local + zip::local_size + file.number(local + 26, 2) + file.number(local + 28, 2);
        if (record.offset > extent.begin || record.size > extent.begin - record.offset) {
            throw std::invalid_argument("record \"" + name + "\" is cut off");
        }
        const auto [added, is_new] = records.emplace(name, record);
        if (!is_new) {
            throw std::invalid_argument("record \"" + name + "\" comes twice");
        }
        places.push_back({local, record.offset + record.size, added->first});
        place = extra + extra_size + file.number(place + 32, 2);
    }
    zip::require_apart(std::move(places));
    return records;
}

} // namespace rtrain::checkpoint
