// SPDX-License-Identifier: Apache-2.0
/// A file system that retries small requests after transient failures. Uploads and downloads are
/// retried by storage/transfer.hpp.
#pragma once

#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::storage {

class Retrying {
public:
    Retrying(AnyFilesystem files, TransferConfig config)
        : files_(std::move(files)), config_(std::move(config)) {}

    [[nodiscard]] std::vector<Entry> list(const std::string& path) const {
        return with_retries(config_, "listing " + files_.uri(path),
                            [&] { return files_.list(path); });
    }
    [[nodiscard]] std::string read(const std::string& path) const {
        return with_retries(config_, "reading " + files_.uri(path),
                            [&] { return files_.read(path); });
    }
    [[nodiscard]] std::string read_at(const std::string& path, std::uint64_t offset,
                                      std::size_t length) const {
        return with_retries(config_, "reading " + files_.uri(path),
                            [&] { return files_.read_at(path, offset, length); });
    }
    [[nodiscard]] std::optional<Entry> look_at(const std::string& path) const {
        return with_retries(config_, "checking " + files_.uri(path),
                            [&] { return files_.look_at(path); });
    }
    [[nodiscard]] bool reads_at() const { return files_.reads_at(); }
    void write(const std::string& path, std::string_view text) const {
        with_retries(config_, "writing " + files_.uri(path), [&] { files_.write(path, text); });
    }
    void upload(const std::filesystem::path& local, const std::string& path) const {
        files_.upload(local, path);
    }
    void download(const std::string& path, const std::filesystem::path& local) const {
        files_.download(path, local);
    }
    void remove(const std::string& path) const {
        with_retries(config_, "removing " + files_.uri(path), [&] { files_.remove(path); });
    }
    [[nodiscard]] bool exists(const std::string& path) const {
        return with_retries(config_, "checking for " + files_.uri(path),
                            [&] { return files_.exists(path); });
    }

private:
    AnyFilesystem files_;
    TransferConfig config_;
};

static_assert(RandomAccessFilesystem<Retrying>);

} // namespace rtrain::storage
