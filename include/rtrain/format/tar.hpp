// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tar archives: names and offsets of their files. Reads ustar, GNU's long names and large sizes,
/// and pax; formats: POSIX.1-2024 pax, "ustar Interchange Format", and GNU tar's manual, "Basic Tar
/// Format". Nothing is unpacked, and links are skipped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::format {

/// A file in an archive.
struct TarMember {
    std::string name;
    std::uint64_t begin = 0; ///< its offset in the archive, headers included
    std::uint64_t data = 0;  ///< offset of its bytes
    std::uint64_t size = 0;
    std::uint64_t end = 0; ///< offset of the next member
};

/// An archive is malformed; the message names the offset.
class TarError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace tar {

inline constexpr std::size_t block = 512;
inline constexpr std::uint64_t max_extension = std::uint64_t{1} << 20U; ///< name or pax, in bytes

[[nodiscard]] inline std::string_view text_of(std::string_view field) {
    return field.substr(0, field.find('\0'));
}

/// Parses octal digits between spaces, or GNU's big-endian binary numbers. Empty for anything else,
/// negative numbers, and those of more than 63 bits.
[[nodiscard]] inline std::optional<std::uint64_t> number_of(std::string_view field) {
    constexpr auto limit = std::uint64_t{1} << 63U;
    std::uint64_t number = 0;
    if ((static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
        for (std::size_t i = 0; i < field.size(); ++i) {
            const auto byte = static_cast<unsigned char>(field[i]);
            if (number >= limit >> 8U) {
                return std::nullopt;
            }
            number = number << 8U | (i == 0 ? byte & 0x7FU : byte);
        }
        return number;
    }
    field = text_of(field);
    field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
    const std::string_view digits = field.substr(0, field.find(' '));
    if (digits.empty() || field.find_first_not_of(' ', digits.size()) != std::string_view::npos) {
        return std::nullopt;
    }
    for (const char digit : digits) {
        if (digit < '0' || digit > '7' || number >= limit >> 3U) {
            return std::nullopt;
        }
        number = number << 3U | static_cast<std::uint64_t>(digit - '0');
    }
    return number;
}

/// True if a header's checksum is correct. Some old programs added signed bytes.
[[nodiscard]] inline bool is_sound(std::string_view header) {
    std::int64_t as_unsigned = 0;
    std::int64_t as_signed = 0;
    for (std::size_t i = 0; i < block; ++i) {
        const char byte = i >= 148 && i < 156 ? ' ' : header[i];
        as_unsigned += static_cast<unsigned char>(byte);
        as_signed += static_cast<signed char>(byte);
    }
    const auto said = number_of(header.substr(148, 8));
    return said && (static_cast<std::int64_t>(*said) == as_unsigned ||
                    static_cast<std::int64_t>(*said) == as_signed);
}

/// Parses the records "length key=value\n" of a pax header. False if they are malformed.
template <class Visit>
[[nodiscard]] bool for_each_record(std::string_view records, Visit&& visit) {
    while (!records.empty()) {
        std::size_t length = 0;
        std::size_t at = 0;
        for (; at < records.size() && records[at] >= '0' && records[at] <= '9'; ++at) {
            length = length * 10 + static_cast<std::size_t>(records[at] - '0');
            if (length > records.size()) {
                return false;
            }
        }
        const std::size_t equals = records.find('=', at);
        if (at == 0 || at >= records.size() || records[at] != ' ' || equals >= length ||
            records[length - 1] != '\n') {
            return false;
        }
        visit(records.substr(at + 1, equals - at - 1),
              records.substr(equals + 1, length - equals - 2));
        records.remove_prefix(length);
    }
    return true;
}

/// True if a name stays below the directory that it would be unpacked into.
[[nodiscard]] inline bool is_below(std::string_view name) {
    if (name.empty() || name.starts_with('/') || name.find('\0') != std::string_view::npos) {
        return false;
    }
    while (!name.empty()) {
        const std::size_t slash = std::min(name.find('/'), name.size());
        if (name.substr(0, slash) == "..") {
            return false;
        }
        name.remove_prefix(std::min(slash + 1, name.size()));
    }
    return true;
}

} // namespace tar

/// Iterates over the files of an archive.
///
/// @code
/// TarReader tar(bytes.size(), [&](std::uint64_t at, std::size_t n) { return bytes.substr(at, n);
/// }); while (const auto file = tar.next()) { std::cout << file->name << '\n'; }
/// @endcode
class TarReader {
public:
    /// Returns `length` bytes at `offset`, fewer at the end. They stay valid until the next call.
    using Read = std::function<std::string_view(std::uint64_t offset, std::size_t length)>;
    enum class End : unsigned char {
        marked,  ///< with two empty blocks, like every complete archive
        anywhere ///< part of an archive: it ends after a file
    };

    /// Reads from `begin` to `size`, both relative to the start of the archive.
    TarReader(std::uint64_t size, Read read, End end = End::marked, std::uint64_t begin = 0)
        : size_(size), read_(std::move(read)), end_(end), at_(begin) {}

    /// Returns the next regular file; empty at the end. Throws TarError if the data is not an
    /// archive, is truncated, or has names that point outside the directory.
    [[nodiscard]] std::optional<TarMember> next() {
        TarMember member;
        member.begin = at_;
        std::optional<std::string> long_name;
        std::optional<std::uint64_t> long_size;
        while (true) {
            if (end_ == End::anywhere && at_ == size_) {
                return std::nullopt;
            }
            const std::string header(bytes(at_, tar::block, "a header"));
            if (header.find_first_not_of('\0') == std::string::npos) {
                finish();
                return std::nullopt;
            }
            if (!tar::is_sound(header)) {
                throw error("the header's checksum is wrong");
            }
            const auto size = tar::number_of(std::string_view(header).substr(124, 12));
            const char type = header[156];
            const bool is_extension = type == 'L' || type == 'K' || type == 'x' || type == 'g';
            const std::uint64_t length = is_extension ? size.value_or(tar::max_extension + 1)
                                                      : long_size.value_or(size.value_or(size_));
            if ((!size && !long_size) || length > size_ - at_ - tar::block) {
                throw error("the size is not a number, or larger than the archive");
            }
            const std::uint64_t data = at_ + tar::block;
            const std::uint64_t padded = (length + tar::block - 1) / tar::block * tar::block;
            if (padded > size_ - data) {
                throw error("the archive ends within a file");
            }
            if (is_extension) {
                read_extension(type, data, length, long_name, long_size);
                at_ = data + padded;
                continue;
            }
            member.name = long_name ? *long_name : name_of(header);
            member.data = data;
            member.size = length;
            member.end = data + padded;
            if (type == '0' || type == '\0' || type == '7') {
                if (!tar::is_below(member.name)) {
                    throw error("the name \"" + member.name + "\" is empty, absolute or has ..");
                }
                at_ = member.end;
                return member;
            }
            // Skips directories, links and devices, with their bytes if they have any.
            at_ = member.begin = has_data(type) ? member.end : data;
            long_name.reset();
            long_size.reset();
        }
    }

private:
    /// Links and devices have no bytes, whatever their header says.
    [[nodiscard]] static bool has_data(char type) { return type < '1' || type > '6'; }

    [[nodiscard]] static std::string name_of(std::string_view header) {
        const std::string name(tar::text_of(header.substr(0, 100)));
        const std::string_view prefix = tar::text_of(header.substr(345, 155));
        // GNU's own format, "ustar  ", stores different fields here.
        return header.substr(257, 6) == std::string_view("ustar\0", 6) && !prefix.empty()
                   ? std::string(prefix) + "/" + name
                   : name;
    }

    void read_extension(char type, std::uint64_t data, std::uint64_t length,
                        std::optional<std::string>& name, std::optional<std::uint64_t>& size) {
        if (length > tar::max_extension) {
            throw error("a name or attribute has more than 1 MiB");
        }
        if (type == 'L') {
            name = tar::text_of(bytes(data, static_cast<std::size_t>(length), "a name"));
        }
        if (type != 'x') {
            return; // 'K': a link's target; 'g': global, such as a comment
        }
        bool is_number = true;
        const bool is_sound =
            tar::for_each_record(bytes(data, static_cast<std::size_t>(length), "attributes"),
                                 [&](std::string_view key, std::string_view value) {
                                     if (key == "path") {
                                         name = value;
                                     } else if (key == "size") {
                                         size = decimal(value);
                                         is_number = size.has_value();
                                     }
                                 });
        if (!is_sound || !is_number) {
            throw error("pax attributes are damaged");
        }
    }

    [[nodiscard]] static std::optional<std::uint64_t> decimal(std::string_view text) {
        std::uint64_t number = 0;
        for (const char digit : text) {
            if (digit < '0' || digit > '9' || number > (std::uint64_t{1} << 59U)) {
                return std::nullopt;
            }
            number = number * 10 + static_cast<std::uint64_t>(digit - '0');
        }
        return text.empty() ? std::nullopt : std::optional(number);
    }

    /// Only zeros may follow the end, so that no file is overlooked.
    void finish() {
        if (end_ == End::anywhere) {
            throw error("there is an empty block between files");
        }
        if (bytes(at_, 2 * tar::block, "the end").find_first_not_of('\0') !=
            std::string_view::npos) {
            throw error("the archive ends with one empty block instead of two");
        }
        constexpr std::size_t piece = 10'240;
        for (std::uint64_t at = at_; at < size_; at += piece) {
            const auto length =
                static_cast<std::size_t>(std::min<std::uint64_t>(piece, size_ - at));
            if (bytes(at, length, "the end").find_first_not_of('\0') != std::string_view::npos) {
                throw error("bytes follow the end of the archive; archives concatenated with "
                            "cat are not supported");
            }
        }
        at_ = size_;
        end_ = End::anywhere; // further calls return nothing
    }

    [[nodiscard]] std::string_view bytes(std::uint64_t offset, std::size_t length,
                                         const char* what) {
        const std::string_view found = read_(offset, length);
        if (found.size() != length) {
            throw error(std::string("the archive ends within ") + what + " and is truncated");
        }
        return found;
    }

    [[nodiscard]] TarError error(const std::string& what) const {
        return TarError("at byte " + std::to_string(at_) + ": " + what);
    }

    std::uint64_t size_;
    Read read_;
    End end_;
    std::uint64_t at_; ///< offset of the next header
};

} // namespace rtrain::format
