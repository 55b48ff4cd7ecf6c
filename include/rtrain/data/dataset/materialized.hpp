// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows that are kept in files, so that they are computed once. In the first run that reads them,
/// each rank of a node writes a share of the files.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/batch_file.hpp>
#include <rtrain/data/batch/gather.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/counted.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/file.h>
#include <sys/vfs.h>

namespace rtrain::data {

/// Files of about 64 MiB in a directory, each with the rows of consecutive blocks.
class MaterializedFiles {
public:
    /// `version` identifies the functions that made the rows. Throws DataError [RT-D52, RT-D53].
    MaterializedFiles(TransformedBlocks rows, std::filesystem::path directory,
                      const std::string& version)
        : rows_(std::move(rows)), directory_(std::move(directory)),
          origin_(
              detail::concat(rows_.index().digest(), ' ', rows_.index().content(), ' ', version)) {
        constexpr std::int64_t bytes_of_part = std::int64_t{64} << 20;
        const BlockIndex& blocks = rows_.index();
        const std::int64_t fits = bytes_of_part / blocks.row_bytes();
        for (std::int64_t first = 0, end = 0; first < blocks.size(); first = end) {
            const std::int64_t last_row = blocks.begin_of(first) + fits;
            do {
                ++end;
            } while (end < blocks.size() && blocks.begin_of(end) + blocks.rows_of(end) <= last_row);
            parts_.push_back({first, end});
        }
        std::filesystem::create_directories(directory_);
        require_disk();
        require_no_others();
    }

    /// All rows, file by file. Creates missing files, first those that no other process of this
    /// node is creating. Throws DataError [RT-D52, RT-D54], StorageError, and exceptions of the
    /// functions.
    [[nodiscard]] std::vector<Batch> take() const {
        std::vector<bool> is_there(parts_.size());
        for (const bool waits : {false, true}) {
            for (std::size_t part = 0; part < parts_.size(); ++part) {
                while (!is_there[part]) {
                    is_there[part] = make(part);
                    if (!is_there[part] && !waits) {
                        break;
                    }
                    if (!is_there[part]) { // another process is creating it
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                    }
                }
            }
        }
        std::vector<Batch> batches;
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            batches.push_back(read(path_of(part)));
        }
        return batches;
    }

    [[nodiscard]] std::filesystem::path path_of(std::size_t part) const {
        std::array<char, 64> name{};
        std::snprintf(name.data(), name.size(), "part-%06zu-of-%06zu.safetensors", part,
                      parts_.size());
        return directory_ / name.data();
    }

private:
    struct Part {
        std::int64_t first; ///< block
        std::int64_t end;
    };
    static constexpr const char* made_of = "made_of";

    /// True if the file exists now; false if another process is creating it.
    [[nodiscard]] bool make(std::size_t part) const {
        const auto path = path_of(part);
        if (std::filesystem::exists(path)) {
            return true;
        }
        storage::FileLock lock(path.string() + ".lock");
        if (!lock.try_lock(LOCK_EX)) {
            return false;
        }
        if (!std::filesystem::exists(path)) {
            std::vector<Batch> batches;
            for (std::int64_t block = parts_[part].first; block < parts_[part].end; ++block) {
                Batch batch = rows_.index().rows_of(block) > 0 ? rows_.read(block) : Batch();
                if (batch.size() > 0) {
                    batches.push_back(std::move(batch));
                }
            }
            write_batch(path, batches.empty() ? Batch() : concatenate(batches),
                        {{made_of, origin_}});
        }
        lock.remove_file();
        return true;
    }

    [[nodiscard]] Batch read(const std::filesystem::path& path) const {
        auto file = detail::parsed(
            [&] { return read_batch(path); },
            [&](const char* why) {
                return DataError("RT-D54",
                                 detail::concat("a file of materialize() cannot be read: ", why,
                                                "; remove ", path.string(),
                                                "; it is then created again"));
            });
        const auto found = file.metadata.find(made_of);
        if (found == file.metadata.end() || found->second != origin_) {
            throw other_rows(path);
        }
        return std::move(file.batch);
    }

    [[nodiscard]] static DataError other_rows(const std::filesystem::path& path) {
        return {
            "RT-D52",
            detail::concat(
                "materialize() finds rows made from different files or by a different version in ",
                path.string(), "; remove that directory's files, or use a different directory")};
    }

    void require_no_others() const {
        std::set<std::string> names;
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            names.insert(path_of(part).filename().string());
        }
        for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
            const std::string name = entry.path().filename().string();
            const bool is_part = name.starts_with("part-") && name.ends_with(".safetensors");
            if (is_part && !names.contains(name)) {
                throw other_rows(entry.path());
            }
        }
    }

    /// Files in tmpfs would take memory twice.
    void require_disk() const {
        constexpr auto tmpfs = 0x01021994;
        constexpr auto ramfs = 0x858458f6;
        struct statfs status = {};
        if (::statfs(directory_.c_str(), &status) == 0 &&
            (status.f_type == tmpfs || status.f_type == ramfs)) {
            throw DataError(
                "RT-D53",
                detail::concat(
                    "materialize() was given ", directory_.string(),
                    ", which is in memory (tmpfs); use a directory on a disk of this node"));
        }
    }

    TransformedBlocks rows_;
    std::filesystem::path directory_;
    std::string origin_;
    std::vector<Part> parts_;
};

/// The rows of mapped files, in blocks of about 256 KiB.
class BlocksOfParts : public Dataset::BlockSource {
public:
    BlocksOfParts(std::vector<Batch> parts, std::vector<std::string> names)
        : parts_(std::move(parts)), names_(std::move(names)) {
        constexpr std::int64_t block_bytes = std::int64_t{1} << 18;
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const std::int64_t rows = parts_[part].size();
            const std::int64_t row_bytes = rows == 0 ? 1 : bytes_of(parts_[part]) / rows + 1;
            const std::int64_t in_block = std::max<std::int64_t>(block_bytes / row_bytes, 1);
            for (std::int64_t row = 0; row < rows; row += in_block) {
                const RowRange range{row, std::min(rows, row + in_block)};
                pieces_.push_back({part, range, (range.end - range.begin) * row_bytes});
            }
        }
    }

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const Piece& piece : pieces_) {
            blocks.push_back({piece.rows.end - piece.rows.begin, piece.bytes});
        }
        return blocks;
    }
    /// Copies: changes to the batch do not change pages of the file.
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const Piece& piece = pieces_[static_cast<std::size_t>(block)];
        return select_rows(parts_[piece.part],
                           at::arange(piece.rows.begin, piece.rows.end, at::kLong));
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        const Piece& piece = pieces_[static_cast<std::size_t>(block)];
        return detail::concat(names_[piece.part], ", rows ", piece.rows.begin, " to ",
                              piece.rows.end - 1);
    }

private:
    struct Piece {
        std::size_t part;
        RowRange rows;
        std::int64_t bytes;
    };
    std::vector<Batch> parts_;
    std::vector<std::string> names_;
    std::vector<Piece> pieces_;
};

/// The rows of mapped files.
class MaterializedRows : public Dataset::Source {
public:
    explicit MaterializedRows(const MaterializedFiles& kept) : parts_(kept.take()) {
        std::vector<std::string> names;
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            ends_.push_back(size() + parts_[part].size());
            names.push_back(kept.path_of(part).string());
        }
        blocks_ = std::make_shared<const BlockIndex>(
            std::make_shared<BlocksOfParts>(parts_, std::move(names)));
    }

    [[nodiscard]] std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return blocks_; }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        const auto locate = [this](std::int64_t row) { return locate_row(ends_, row); };
        return gather_rows(indices, locate, [this](std::int64_t part, const at::Tensor& rows) {
            return select_rows(parts_[static_cast<std::size_t>(part)], rows);
        });
    }

private:
    std::vector<Batch> parts_;
    std::vector<std::int64_t> ends_; ///< the end of each part
    std::shared_ptr<const BlockIndex> blocks_;
};

} // namespace rtrain::data
