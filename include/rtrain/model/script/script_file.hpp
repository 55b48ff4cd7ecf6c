// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recognizes a file that Python was asked to export: a TorchScript program, or one of the kinds
/// that are often passed instead. Each of these gets an error that names it, and what to use.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/zip_directory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::script {

/// The remedy for most kinds of files.
inline constexpr const char* how_to_export =
    "in Python, export the network with torch.jit.script(net).save(\"net.pt\")";

/// The remedy for files that hold weights only.
[[nodiscard]] inline std::string how_to_use_weights() {
    return detail::concat(how_to_export,
                          ", and load these weights into it with rtrain::load_weights()");
}

/// Throws ModelError [RT-M81]: `file` is `kind`, and the user should do `remedy`.
[[noreturn]] inline void refuse_kind(const std::string& file, const std::string& kind,
                                     const std::string& remedy) {
    throw ModelError("RT-M81",
                     detail::concat(file, " is ", kind, ", not a TorchScript program; ", remedy));
}

/// Throws ModelError [RT-M81] unless the zip file has the records of a TorchScript program.
inline void require_program(std::span<const char> bytes, const std::string& file) {
    checkpoint::ZipDirectory records;
    try {
        records = checkpoint::parse_zip_directory(bytes);
    } catch (const std::invalid_argument& error) {
        refuse_kind(file, detail::concat("a damaged or truncated zip file (", error.what(), ')'),
                    "copy or export it again");
    }
    const auto ends = [&](std::string_view end) {
        return std::any_of(records.begin(), records.end(),
                           [&](const auto& record) { return record.first.ends_with(end); });
    };
    if (ends("/constants.pkl")) {
        return;
    }
    if (ends("serialized_exported_program.json") || ends("/archive_format") ||
        ends("/models/model.json") || ends("archive_version")) {
        refuse_kind(file, "a program of torch.export (.pt2)",
                    detail::concat("such programs cannot be trained from C++; ", how_to_export));
    }
    if (ends("/data.pkl")) {
        refuse_kind(file, "a file of torch.save (a state_dict, or another Python object)",
                    how_to_use_weights());
    }
    if (ends(".npy")) {
        refuse_kind(file, "a file of NumPy arrays (.npz)", how_to_export);
    }
    refuse_kind(file, "another kind of zip file", how_to_export);
}

/// Throws ModelError [RT-M81] unless `bytes` are those of a TorchScript program.
inline void require_script(std::span<const char> bytes, const std::string& file) {
    constexpr std::size_t header = 8; // of safetensors: the size of its JSON
    const std::string_view text(bytes.data(), bytes.size());
    const auto is_at = [&](std::size_t place, std::string_view mark) {
        return text.size() >= place && text.substr(place).starts_with(mark);
    };
    if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) {
        require_program(bytes, file);
        return;
    }
    if (text.empty()) {
        refuse_kind(file, "empty", "copy or export it again");
    }
    if (is_at(header, "{") && (is_at(header + 1, "\"") || is_at(header + 1, " "))) {
        refuse_kind(file, "a safetensors file, which holds weights only", how_to_use_weights());
    }
    if (is_at(4, "PTMF")) {
        refuse_kind(file, "a program for PyTorch Mobile (flatbuffer)", how_to_export);
    }
    if (text.starts_with("\x80\x02\x8a\x0a")) {
        refuse_kind(file, "a file of torch.save in the format used before PyTorch 1.6",
                    "load it in Python, put the weights into the network there, and export that: "
                    "torch.jit.script(net).save(\"net.pt\")");
    }
    if (text.front() == '\x80') {
        refuse_kind(file, "a pickle of Python objects", how_to_export);
    }
    if (text.starts_with("version https://git-lfs")) {
        refuse_kind(file, "a pointer of Git LFS", "fetch the file itself with git lfs pull");
    }
    if (text.starts_with("\x89HDF")) {
        refuse_kind(file, "an HDF5 file, as Keras writes it", "export a PyTorch network instead");
    }
    if (std::filesystem::path(file).extension() == ".onnx" || is_at(2, "\x12\x07pytorch")) {
        refuse_kind(file, "an ONNX model, which cannot be trained",
                    detail::concat("export the network it was made from: ", how_to_export));
    }
    refuse_kind(file, "a file of an unknown kind", how_to_export);
}

/// Throws ModelError: RT-M80 if `path` is not a file, RT-M81 if it is a directory.
inline void require_file(const std::filesystem::path& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
        throw ModelError("RT-M80",
                         detail::concat(path.string(), " does not exist (working directory ",
                                        std::filesystem::current_path(error).string(),
                                        "); pass the path of a file that "
                                        "torch.jit.script(net).save() wrote"));
    }
    if (std::filesystem::is_directory(status)) {
        const bool is_checkpoint = std::filesystem::exists(path / "manifest.json", error);
        refuse_kind(path.string(),
                    is_checkpoint ? "an rtrain checkpoint, which has weights but no program"
                                  : "a directory",
                    is_checkpoint ? "load it through State, or write a program with its weights: "
                                    "rtrain-checkpoint script CHECKPOINT net.pt out.pt"
                                  : "pass the path of a file");
    }
}

} // namespace rtrain::script
