// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tar archives: the names and places of their files. Reads ustar, GNU's long names and large
/// sizes, and pax; formats: POSIX.1-2024 pax, "ustar Interchange Format", and GNU tar's manual,
/// "Basic Tar Format". Nothing is unpacked, and links are passed over.
#pragma once

#include <algorithm>
#include <array>
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
    std::uint64_t begin = 0; ///< of what belongs to it in the archive, headers included
    std::uint64_t data = 0;  ///< where its bytes are
    std::uint64_t size = 0;
    std::uint64_t end = 0; ///< where the next member begins
};

/// What is wrong with an archive: the message names the offset.
class TarError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace tar {

inline constexpr std::size_t block = 512;
inline constexpr std::uint64_t max_extension = std::uint64_t{1} << 20U; ///< of a long name, or pax

[[nodiscard]] inline std::string_view text_of(std::string_view field) {
    return field.substr(0, field.find('\0'));
}

/// Octal digits between spaces, or GNU's numbers of the bytes themselves, most first. None for
/// anything else, negative ones, and those of more than 63 bits.
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

/// Whether the checksum of a header is its own. Old programs have added signed bytes.
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

/// The records "length key=value\n" of a pax header. False when they are not of this form.
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

/// Whether a name stays below the directory that it would be unpacked into.
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

/// Goes from file to file of an archive.
///
/// @code
/// TarReader tar(bytes.size(), [&](std::uint64_t at, std::size_t n) { return bytes.substr(at, n);
/// }); while (const auto file = tar.next()) { std::cout << file->name << '\n'; }
/// @endcode
class TarReader {
public:
    /// Gives `length` bytes from `offset` on, fewer where there are no more. They stay until it is
    /// called again.
    using Read = std::function<std::string_view(std::uint64_t offset, std::size_t length)>;
    enum class End : unsigned char {
        marked,  ///< two empty blocks, as every archive has
        anywhere ///< a part of an archive: it ends behind a file
    };

    /// Reads what lies from `begin` to `size`, both counted from the beginning of the archive.
    TarReader(std::uint64_t size, Read read, End end = End::marked, std::uint64_t begin = 0)
        : size_(size), read_(std::move(read)), end_(end), at_(begin) {}

    /// The next regular file; none at the end. Throws TarError for what is no archive, is cut off,
    /// or has names that lead out of a directory.
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
                throw error("it has a size that is no number, or larger than the archive");
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
            // Of directories, links and devices, the size is of no account but for its bytes.
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
        // GNU's own format, "ustar  ", has other fields there.
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
            return; // 'K': a link's target; 'g': of all files, such as a comment
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

    /// Behind the end there are only zeros, so that no file is overlooked.
    void finish() {
        if (end_ == End::anywhere) {
            throw error("an empty block lies between files");
        }
        if (bytes(at_, 2 * tar::block, "the end").find_first_not_of('\0') !=
            std::string_view::npos) {
            throw error("one empty block instead of two");
        }
        constexpr std::size_t piece = 10'240;
        for (std::uint64_t at = at_; at < size_; at += piece) {
            const auto length =
                static_cast<std::size_t>(std::min<std::uint64_t>(piece, size_ - at));
            if (bytes(at, length, "the end").find_first_not_of('\0') != std::string_view::npos) {
                throw error("bytes follow the end of the archive; archives that were joined by "
                            "cat are not read");
            }
        }
        at_ = size_;
        end_ = End::anywhere; // further calls give none
    }

    [[nodiscard]] std::string_view bytes(std::uint64_t offset, std::size_t length,
                                         const char* what) {
        const std::string_view found = read_(offset, length);
        if (found.size() != length) {
            throw error(std::string("the archive ends within ") + what + ", so it is cut off");
        }
        return found;
    }

    [[nodiscard]] TarError error(const std::string& what) const {
        return TarError("at byte " + std::to_string(at_) + ": " + what);
    }

    std::uint64_t size_;
    Read read_;
    End end_;
    std::uint64_t at_; ///< of the next header
};

} // namespace rtrain::format
