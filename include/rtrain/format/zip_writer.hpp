// SPDX-License-Identifier: Apache-2.0
/// @file
/// ZipWriter: a zip file with uncompressed records and their CRC-32. Limited to 4 GiB and 65,534
/// records: zip64 is not written.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

namespace rtrain::format {

class ZipWriter {
public:
    /// Writes at the start of `output`, which must outlive this object.
    explicit ZipWriter(storage::OutputFile& output) : output_(output) {}

    /// Adds a record; its name must be ASCII and unique. Throws StorageError [RT-S19] if it exceeds
    /// the limits, [RT-S3] if it cannot be written.
    void add(std::string_view name, std::string_view bytes) {
        require_room(name, bytes.size());
        begin(name, bytes.size(), checksum(0, bytes));
        write(bytes);
    }

    /// Same for a file that must not change meanwhile. Also throws StorageError [RT-S4].
    void add_file(std::string_view name, const std::filesystem::path& file) {
        const std::uint64_t size = std::filesystem::file_size(file);
        require_room(name, size);
        std::uint32_t sum = 0;
        each_part(file, [&](std::string_view part) { sum = checksum(sum, part); });
        begin(name, size, sum);
        each_part(file, [this](std::string_view part) { write(part); });
    }

    /// Writes the directory. Nothing may be added afterwards.
    void finish() {
        const std::uint64_t begin = at_;
        write(directory_);
        std::string end = "PK\5\6";
        put(end, 0, 4); // disk numbers: a single disk
        put(end, records_, 2);
        put(end, records_, 2);
        put(end, directory_.size(), 4);
        put(end, begin, 4);
        put(end, 0, 2); // no comment
        write(end);
    }

private:
    static constexpr std::uint64_t most_bytes = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::uint64_t most_records = std::numeric_limits<std::uint16_t>::max() - 1;

    [[nodiscard]] static std::uint32_t checksum(std::uint32_t sum, std::string_view bytes) {
        return static_cast<std::uint32_t>(
            ::crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
    }

    static void put(std::string& text, std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            text += static_cast<char>(value >> (8 * i) & 0xffU);
        }
    }

    template <class Visit>
    static void each_part(const std::filesystem::path& file, Visit&& visit) {
        storage::InputFile input(file);
        std::string part(std::size_t{1} << 16, '\0');
        while (const std::size_t got = input.read(part.data(), part.size())) {
            visit(std::string_view(part).substr(0, got));
        }
    }

    void write(std::string_view bytes) {
        output_.write(bytes);
        at_ += bytes.size();
    }

    void require_room(std::string_view name, std::uint64_t size) const {
        constexpr std::uint64_t heads =
            30 + 46 + 22; // headers of the record, its entry, and the end
        if (at_ + size + directory_.size() + 2 * name.size() + heads > most_bytes ||
            records_ == most_records) {
            throw StorageError(
                "RT-S19",
                rtrain::detail::concat("\"", name, "\" of ", size,
                                       " bytes does not fit into a zip file; expected 4 GiB and "
                                       "65,534 records at most"));
        }
    }

    void begin(std::string_view name, std::uint64_t size, std::uint32_t sum) {
        std::string head;
        put(head, 20, 2);       // version of the format that a reader needs
        put(head, 0, 4);        // neither flags nor compression
        put(head, 0x210000, 4); // dated 1980, so that equal records give equal files
        put(head, sum, 4);
        put(head, size, 4);
        put(head, size, 4);
        put(head, name.size(), 2);
        put(head, 0, 2); // no extra field
        directory_ += "PK\1\2";
        put(directory_, 20, 2); // version of the writer
        directory_ += head;
        directory_.append(10, '\0'); // no comment, disk 0, no attributes
        put(directory_, at_, 4);
        directory_ += name;
        ++records_;
        write("PK\3\4");
        write(head);
        write(name);
    }

    storage::OutputFile& output_;
    std::string directory_;
    std::uint64_t at_ = 0;
    std::uint64_t records_ = 0;
};

} // namespace rtrain::format
