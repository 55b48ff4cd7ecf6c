// SPDX-License-Identifier: Apache-2.0
/// @file
/// WebDataset: tar archives in which consecutive files with the same name up to the first dot are
/// one sample. Format: https://github.com/webdataset/webdataset, "The WebDataset Format".
#pragma once

#include <rtrain/format/tar.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::format {

/// A file of a sample: the field of "train/0001.seg.png" is "seg.png".
struct SampleFile {
    std::string field; ///< in lower case
    std::uint64_t data = 0;
    std::uint64_t size = 0;
};

struct TarSample {
    std::string key; ///< "train/0001"
    std::vector<SampleFile> files;
    std::uint64_t begin = 0; ///< offset of its part of the archive
    std::uint64_t end = 0;
};

/// True for a file that describes the archive: its first path component, up to a dot, has the form
/// "__index__", as in "__index__.txt", "./__index__.txt" or "__index__/a.txt". webdataset takes the
/// first for a sample, whose fields all others would lack.
[[nodiscard]] inline bool is_of_archive(std::string_view name) {
    const auto is_marked = [](std::string_view part) {
        return part.size() >= 4 && part.starts_with("__") && part.ends_with("__");
    };
    while (name.starts_with("./")) { // as tar writes it for "."
        name.remove_prefix(2);
    }
    const std::string_view first = name.substr(0, name.find('/'));
    return is_marked(first) ||
           (first.size() == name.size() && is_marked(first.substr(0, first.find('.'))));
}

/// Key and field of a name. Empty for files that belong to no sample: those describing the archive,
/// and those without a dot or with a leading dot.
[[nodiscard]] inline std::optional<std::pair<std::string, std::string>>
split_sample_name(std::string_view name) {
    const std::size_t slash = name.rfind('/');
    const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', base);
    if (dot == std::string_view::npos || dot == base || dot + 1 == name.size() ||
        is_of_archive(name)) {
        return std::nullopt;
    }
    std::string field(name.substr(dot + 1));
    std::ranges::transform(field, field.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return std::pair(std::string(name.substr(0, dot)), std::move(field));
}

/// Iterates over the samples of an archive.
class SampleReader {
public:
    explicit SampleReader(TarReader tar) : tar_(std::move(tar)) {}

    /// Throws TarError like TarReader, and if a sample has two files with the same field.
    [[nodiscard]] std::optional<TarSample> next() {
        TarSample sample;
        while (next_ || advance()) {
            if (!sample.files.empty() && next_->first != sample.key) {
                return sample;
            }
            if (sample.files.empty()) {
                sample.key = next_->first;
                sample.begin = member_.begin;
            }
            if (std::ranges::find(sample.files, next_->second, &SampleFile::field) !=
                sample.files.end()) {
                throw TarError("at byte " + std::to_string(member_.begin) + ": \"" + sample.key +
                               "\" has ." + next_->second + " twice");
            }
            sample.files.push_back(
                {.field = next_->second, .data = member_.data, .size = member_.size});
            sample.end = member_.end;
            next_.reset();
        }
        return sample.files.empty() ? std::nullopt : std::optional(std::move(sample));
    }

private:
    /// Advances to the next file that belongs to a sample.
    [[nodiscard]] bool advance() {
        while (auto member = tar_.next()) {
            next_ = split_sample_name(member->name);
            if (next_) {
                member_ = std::move(*member);
                return true;
            }
        }
        return false;
    }

    TarReader tar_;
    TarMember member_;
    std::optional<std::pair<std::string, std::string>> next_;
};

} // namespace rtrain::format
