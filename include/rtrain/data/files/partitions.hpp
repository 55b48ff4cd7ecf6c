// SPDX-License-Identifier: Apache-2.0
/// @file
/// Columns from the directory names of files, in Hive's format: "year=2024/month=1/a.parquet".
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/node/random_access_file.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The values in the directory names of several files. A column is int64 if all its values are
/// integers, else text; __HIVE_DEFAULT_PARTITION__ is a missing value.
class Partitions {
public:
    /// For given directories, only the directories below them count. Throws DataError [RT-D108] if
    /// files have different columns.
    Partitions(const Paths& paths, const FileOptions& options,
               const std::vector<storage::RandomAccessFile>& files) {
        std::vector<std::string> roots;
        for (const std::string& path : paths.given()) {
            const storage::Location at = storage::locate(path, options.transfer);
            roots.push_back(at.filesystem.uri(at.path));
        }
        for (const auto& file : files) {
            of_files_.push_back(options.partitions ? pairs_in(file.uri(), roots)
                                                   : std::vector<Pair>{});
            require_same_names(files, of_files_.size() - 1);
        }
        for (std::size_t i = 0; i < of_files_.front().size(); ++i) {
            are_integers_.push_back(std::ranges::all_of(of_files_, [&](const auto& pairs) {
                return pairs[i].value == no_value || integer_in(pairs[i].value).has_value();
            }));
        }
    }

    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Pair& pair : of_files_.front()) {
            names.push_back(pair.name);
        }
        return names;
    }

    /// Keeps only those in `columns`, if any are chosen, and removes them from it.
    void choose(std::vector<std::string>& columns) {
        const std::vector<std::string> chosen = columns;
        for (std::size_t i = names().size(); i-- > 0;) {
            const std::string name = names()[i];
            if (!chosen.empty() && std::ranges::find(chosen, name) == chosen.end()) {
                remove(i);
            }
            std::erase(columns, name);
        }
        if (columns.empty() && !chosen.empty()) {
            throw DataError(
                "RT-D108",
                "all .columns are names of directories; also choose a column of the files");
        }
    }

    /// Adds these columns to `rows` of a file, except those that the file already has.
    [[nodiscard]] Batch added_to(const Batch& rows, std::size_t file) const {
        Batch::Columns columns = rows.columns();
        Batch::RaggedColumns ragged = rows.ragged_columns();
        Batch::Columns masks = rows.masks();
        const std::int64_t count = rows.size();
        for (std::size_t i = 0; i < are_integers_.size(); ++i) {
            const auto& [name, value] = of_files_[file][i];
            const auto is_own = [&name = name](const auto& column) { return column.first == name; };
            if (std::ranges::any_of(columns, is_own) || std::ranges::any_of(ragged, is_own)) {
                continue;
            }
            const bool is_missing = value == no_value;
            if (are_integers_[i]) {
                columns.emplace_back(name,
                                     at::full({count}, integer_in(value).value_or(0), at::kLong));
            } else {
                ragged.emplace_back(name, repeated(is_missing ? "" : value, count));
            }
            if (is_missing) {
                masks.emplace_back(name, at::zeros({count}, at::kBool));
            }
        }
        return {std::move(columns), std::move(ragged), std::move(masks)};
    }

    /// The hash of all values of a file's directories; 0: none.
    [[nodiscard]] std::uint64_t digest(std::size_t file) const {
        std::uint64_t digest = 0;
        for (const auto& [name, value] : of_files_[file]) {
            digest = hash_of(digest, checkpoint::crc32c(name), checkpoint::crc32c(value));
        }
        return digest;
    }

private:
    static constexpr std::string_view no_value = "__HIVE_DEFAULT_PARTITION__";
    struct Pair {
        std::string name;
        std::string value;
    };

    [[nodiscard]] static std::vector<Pair> pairs_in(std::string_view uri,
                                                    const std::vector<std::string>& roots) {
        for (const std::string& root : roots) {
            if (uri.size() > root.size() && uri.starts_with(root) &&
                (root.ends_with('/') || uri[root.size()] == '/')) {
                uri.remove_prefix(root.size());
                break;
            }
        }
        std::vector<Pair> pairs;
        for (std::size_t slash = uri.find('/'); slash != std::string_view::npos;
             slash = uri.find('/')) {
            const std::string_view part = uri.substr(0, slash);
            const std::size_t equals = part.find('=');
            if (equals != std::string_view::npos && equals > 0) {
                pairs.push_back(
                    {decoded(part.substr(0, equals)), decoded(part.substr(equals + 1))});
            }
            uri.remove_prefix(slash + 1);
        }
        return pairs;
    }

    /// "a%2Fb" is "a/b".
    [[nodiscard]] static std::string decoded(std::string_view text) {
        std::string plain;
        for (std::size_t at = 0; at < text.size(); ++at) {
            unsigned char byte = 0;
            const char* const digits = text.data() + at + 1;
            if (text[at] == '%' && at + 2 < text.size() &&
                std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
                plain += static_cast<char>(byte);
                at += 2;
            } else {
                plain += text[at];
            }
        }
        return plain;
    }

    void require_same_names(const std::vector<storage::RandomAccessFile>& files,
                            std::size_t file) const {
        if (!std::ranges::equal(of_files_[file], of_files_.front(), {}, &Pair::name, &Pair::name)) {
            throw DataError("RT-D108",
                            detail::concat("the directories of ", files[file].uri(), " and ",
                                           files.front().uri(),
                                           " name different columns as name=value; give all files "
                                           "the same, or set .files = {.partitions = false}"));
        }
    }

    [[nodiscard]] static std::optional<std::int64_t> integer_in(std::string_view text) {
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                        : std::nullopt;
    }

    [[nodiscard]] static Ragged repeated(std::string_view text, std::int64_t count) {
        const auto length = static_cast<std::int64_t>(text.size());
        at::Tensor one = at::empty({length}, at::kByte);
        if (length > 0) {
            std::memcpy(one.mutable_data_ptr(), text.data(), text.size());
        }
        return {one.repeat({count}), at::arange(count + 1, at::kLong).mul_(length)};
    }

    void remove(std::size_t column) {
        const auto at = static_cast<std::ptrdiff_t>(column);
        for (auto& pairs : of_files_) {
            pairs.erase(pairs.begin() + at);
        }
        are_integers_.erase(are_integers_.begin() + at);
    }

    std::vector<std::vector<Pair>> of_files_;
    std::vector<bool> are_integers_; ///< by column
};

/// Adds the columns of directories to blocks of files. `Source` maps each block to its file.
template <class Source>
class PartitionedBlocks final : public Dataset::BlockSource {
public:
    PartitionedBlocks(std::shared_ptr<const Source> inner, Partitions partitions)
        : inner_(std::move(inner)), partitions_(std::move(partitions)) {}

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks = inner_->blocks();
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const std::size_t file = inner_->file_of(static_cast<std::int64_t>(i));
            blocks[i].content = hash_of(blocks[i].content, partitions_.digest(file));
        }
        return blocks;
    }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        return partitions_.added_to(inner_->read(block), inner_->file_of(block));
    }
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        class WithColumns : public Cursor {
        public:
            WithColumns(std::unique_ptr<Cursor> inner, const Partitions& partitions,
                        std::size_t file)
                : inner_(std::move(inner)), partitions_(&partitions), file_(file) {}
            [[nodiscard]] Batch next(std::int64_t rows) override {
                const Batch batch = inner_->next(rows);
                return batch.size() == 0 ? batch : partitions_->added_to(batch, file_);
            }
            [[nodiscard]] std::int64_t bytes() const override { return inner_->bytes(); }

        private:
            std::unique_ptr<Cursor> inner_;
            const Partitions* partitions_;
            std::size_t file_;
        };
        return std::make_unique<WithColumns>(inner_->open(block, first_row), partitions_,
                                             inner_->file_of(block));
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return inner_->name_of(block);
    }

private:
    std::shared_ptr<const Source> inner_;
    Partitions partitions_;
};

/// The rows that `make(columns)` reads from files, with the columns of their directories; `columns`
/// are those to read, without those of directories.
template <class Make>
[[nodiscard]] Dataset from_partitioned(const Paths& paths, const FileOptions& options,
                                       const std::vector<storage::RandomAccessFile>& files,
                                       std::vector<std::string> columns, const Make& make) {
    Partitions partitions(paths, options, files);
    partitions.choose(columns);
    auto source = make(std::move(columns));
    if (partitions.names().empty()) {
        return from_blocks(std::move(source));
    }
    using Source = std::remove_cvref_t<decltype(*source)>;
    return from_blocks(std::make_shared<const PartitionedBlocks<Source>>(std::move(source),
                                                                         std::move(partitions)));
}

} // namespace rtrain::data
