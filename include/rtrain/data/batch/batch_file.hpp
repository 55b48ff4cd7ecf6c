// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch in a safetensors file, whose tensors are then views of the mapped file.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value_to.hpp>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

using FileMetadata = std::map<std::string, std::string>;

/// Writes a batch and `metadata`; the file is complete or absent. Throws StorageError, and
/// CheckpointError [RT-K6, RT-K20] for tensors and names that safetensors cannot hold.
inline void write_batch(const std::filesystem::path& path, const Batch& batch,
                        FileMetadata metadata) {
    std::map<std::string, at::Tensor> tensors;
    const auto add = [&](const std::string& kind, const auto& columns, const auto& tensor_of) {
        boost::json::array names; // a file orders tensors differently
        for (const auto& [name, column] : columns) {
            names.emplace_back(name);
            tensors[kind + '.' + name] = tensor_of(column);
        }
        metadata[kind] = json::serialize(names);
    };
    const auto itself = [](const at::Tensor& column) { return column; };
    add("column", batch.columns(), itself);
    add("values", batch.ragged_columns(), [](const Ragged& column) { return column.values; });
    add("offsets", batch.ragged_columns(), [](const Ragged& column) { return column.offsets; });
    add("valid", batch.masks(), itself);
    storage::replace_file_by(path, [&](storage::OutputFile& file) {
        checkpoint::safetensors::write(file, tensors, metadata);
    });
}

struct BatchFile {
    Batch batch;
    FileMetadata metadata;
};

/// Reads a file of write_batch(). Throws CheckpointError [RT-K2] if the file is damaged,
/// StorageError.
[[nodiscard]] inline BatchFile read_batch(const std::filesystem::path& path) {
    auto content = checkpoint::safetensors::read_with_metadata(path);
    const auto batch_of = [&] {
        const auto names_of = [&](const std::string& kind) {
            return boost::json::value_to<std::vector<std::string>>(
                json::parse(content.metadata.at(kind)));
        };
        const auto columns_of = [&](const std::string& kind) {
            Batch::Columns columns;
            for (const std::string& name : names_of(kind)) {
                columns.emplace_back(name, content.tensors.at(kind + '.' + name));
            }
            return columns;
        };
        Batch::RaggedColumns ragged;
        for (const std::string& name : names_of("values")) {
            ragged.emplace_back(name, Ragged{content.tensors.at("values." + name),
                                             content.tensors.at("offsets." + name)});
        }
        return Batch(columns_of("column"), std::move(ragged), columns_of("valid"));
    };
    Batch batch = detail::parsed(batch_of, [&](const char* why) {
        return CheckpointError("RT-K2",
                               detail::concat(path.string(), " does not hold a batch: ", why));
    });
    return {std::move(batch), std::move(content.metadata)};
}

} // namespace rtrain::data
