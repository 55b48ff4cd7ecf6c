// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's weights in files that Python reads and writes: safetensors, including Hugging Face
/// shards, and PyTorch's own format. Parameters and buffers have the names that Python's
/// state_dict() gives them. Guide: docs/weights.md
///
/// @code
/// rtrain::load_weights(model, "resnet50.safetensors");
/// rtrain::save_weights("tuned.pt", model);
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/base/text/random_digits.hpp>
#include <rtrain/format/safetensors.hpp>
#include <rtrain/format/torch_file.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain {

/// Name mapping and accepted mismatches of load_weights().
struct LoadWeightsOptions {
    /// Throw if a tensor of the model is not in the file, or one of the file not in the model.
    bool strict = true;
    /// Prefix of names in the file that the model's names lack, for example "model." or "module.";
    /// skips names in the file without it.
    std::string prefix{};
};

/// The result of load_weights(); both lists are empty if it was strict.
struct LoadedWeights {
    /// Tensors of the model that were not in the file, and kept their values.
    std::vector<std::string> missing;
    /// Tensors of the file that the model does not have.
    std::vector<std::string> unexpected;
};

namespace weights {

/// A module, or a pointer to one: a module holder or a smart pointer.
template <class M>
concept ModuleLike = std::derived_from<M, torch::nn::Module> || requires(const M& model) {
    { *model } -> std::convertible_to<const torch::nn::Module&>;
};
/// Returns the module of a holder, a handle or a shared pointer, or the module itself.
template <class M>
[[nodiscard]] auto& module_of(M& model) {
    if constexpr (std::derived_from<M, torch::nn::Module>) {
        return model;
    } else {
        return *model;
    }
}

/// A prepared model whose tensors can only be written in edit(), such as ShardedParallel's.
template <class M>
concept Edited = requires(M& model) {
    model.edit([](torch::nn::Module& /*module*/) {});
};

/// Parameters and buffers of the module, by name.
[[nodiscard]] inline checkpoint::Tensors tensors_of(const torch::nn::Module& module) {
    checkpoint::Tensors tensors;
    for (const auto& item : module.named_parameters()) {
        tensors.emplace(item.key(), item.value());
    }
    for (const auto& item : module.named_buffers()) {
        if (item.value().defined()) {
            tensors.emplace(item.key(), item.value());
        }
    }
    return tensors;
}

/// Format of a weights file.
enum class Format : unsigned char {
    safetensors, ///< .safetensors
    torch        ///< written by torch.save()
};

/// Returns the format for a file name's extension.
[[nodiscard]] inline Format format_of(const std::filesystem::path& path) {
    const std::string extension = checkpoint::names::lower_case(path.extension().string());
    if (extension == ".safetensors") {
        return Format::safetensors;
    }
    if (extension == ".pt" || extension == ".pth" || extension == ".bin") {
        return Format::torch;
    }
    throw CheckpointError(
        "RT-K26", detail::concat(path.string(),
                                 " has an unknown extension; use .safetensors, .pt, .pth or .bin"));
}

/// Hugging Face's file name of a model's index.
inline constexpr const char* shards_index = "model.safetensors.index.json";

/// Reads the tensors of a directory in Hugging Face's layout.
[[nodiscard]] inline checkpoint::Tensors read_shards(const std::filesystem::path& directory) {
    const auto index = directory / shards_index;
    if (!std::filesystem::exists(index)) {
        if (const auto single = directory / "model.safetensors"; std::filesystem::exists(single)) {
            return checkpoint::safetensors::read(single);
        }
        throw CheckpointError("RT-K26", detail::concat(directory.string(), " contains no ",
                                                       shards_index, " and no model.safetensors"));
    }
    const std::string text = storage::read_file(index);
    const auto places_of_tensors = [&] {
        std::map<std::string, std::string> places;
        const auto value = json::parse(text);
        for (const auto& item : value.at("weight_map").as_object()) {
            const std::string file(item.value().as_string());
            if (!checkpoint::is_safe_name(file)) {
                throw std::invalid_argument("the index names a file outside of the directory");
            }
            places.emplace(item.key(), file);
        }
        return places;
    };
    const auto places = detail::parsed(places_of_tensors, [&](const char* why) {
        return CheckpointError("RT-K27", detail::concat(index.string(), " is damaged: ", why));
    });
    std::map<std::string, checkpoint::Tensors> files;
    checkpoint::Tensors tensors;
    for (const auto& [name, file] : places) {
        auto [shard, added] = files.try_emplace(file);
        if (added) {
            shard->second = checkpoint::safetensors::read(directory / file);
        }
        const auto found = shard->second.find(name);
        if (found == shard->second.end()) {
            throw CheckpointError("RT-K27",
                                  detail::concat(index.string(), " lists \"", name, "\" in ", file,
                                                 ", which does not contain it"));
        }
        tensors.insert(*found);
    }
    return tensors;
}

[[nodiscard]] inline checkpoint::Tensors read(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path)) {
        return read_shards(path);
    }
    return format_of(path) == Format::torch ? checkpoint::read_torch_file(path)
                                            : checkpoint::safetensors::read(path);
}

/// `"a", "b" and 3 more`
[[nodiscard]] inline std::string some_of(const std::vector<std::string>& names) {
    constexpr std::size_t shown = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) {
        text += detail::concat(i == 0 ? "" : ", ", '"', names[i], '"');
    }
    return names.size() <= shown ? text
                                 : detail::concat(text, " and ", names.size() - shown, " more");
}

/// Throws unless `saved` can become the value of `target`.
inline void require_fitting(const std::string& name, const at::Tensor& saved,
                            const at::Tensor& target) {
    if (saved.sizes() != target.sizes()) {
        throw CheckpointError("RT-K25", detail::concat("\"", name, "\" is ", saved.sizes(),
                                                       " in the file, but ", target.sizes(),
                                                       " in the model"));
    }
    if (!c10::canCast(saved.scalar_type(), target.scalar_type())) {
        throw CheckpointError("RT-K25",
                              detail::concat("\"", name, "\" is ", saved.scalar_type(),
                                             " in the file, which cannot be converted to ",
                                             target.scalar_type(), ", its type in the model"));
    }
}

/// Assigns tensors of a file to tensors of a model.
struct Match {
    LoadedWeights found;                                   ///< what load_weights() returns
    std::vector<std::pair<at::Tensor, at::Tensor>> copies; ///< (target, source)
};

/// Matches the tensors of the files to those of the module.
[[nodiscard]] inline Match match(const torch::nn::Module& module, const std::filesystem::path& path,
                                 const LoadWeightsOptions& options) {
    const checkpoint::Tensors file = read(path);
    checkpoint::Tensors targets = tensors_of(module);
    Match matched;
    auto& [found, copies] = matched;
    // Not by address: weights that are gathered on use have none.
    const auto place_of = [](const at::Tensor& tensor) {
        return std::pair(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset());
    };
    std::set<std::pair<const c10::StorageImpl*, std::int64_t>> loaded;
    for (const auto& [name, saved] : file) {
        if (!name.starts_with(options.prefix)) {
            continue;
        }
        const auto target = targets.find(name.substr(options.prefix.size()));
        if (target == targets.end()) {
            found.unexpected.push_back(name);
            continue;
        }
        require_fitting(target->first, saved, target->second);
        copies.emplace_back(target->second, saved);
        loaded.insert(place_of(target->second));
        targets.erase(target);
    }
    for (const auto& [name, target] : targets) {
        // One of several tied weights is enough.
        if (target.numel() > 0 && loaded.contains(place_of(target))) {
            continue;
        }
        found.missing.push_back(name);
    }
    if (options.strict && !(found.missing.empty() && found.unexpected.empty())) {
        throw CheckpointError(
            "RT-K24",
            detail::concat(path.string(), " does not fit the model:",
                           found.missing.empty() ? "" : " the file lacks " + some_of(found.missing),
                           found.missing.empty() || found.unexpected.empty() ? "" : ", and",
                           found.unexpected.empty() ? ""
                                                    : " the file has " + some_of(found.unexpected) +
                                                          ", which the model lacks",
                           "; load with .strict = false to skip these"));
    }
    return matched;
}

inline LoadedWeights load(torch::nn::Module& module, const std::filesystem::path& path,
                          const LoadWeightsOptions& options) {
    Match matched = match(module, path, options);
    const torch::NoGradGuard no_grad;
    process::DeferredCopy::finish_all();
    for (auto& [target, saved] : matched.copies) {
        target.copy_(saved);
    }
    return std::move(matched.found);
}

/// Called on one rank of each node; the others get the same.
template <Edited Model>
LoadedWeights load_edited(Model& model, const std::filesystem::path& path,
                          const LoadWeightsOptions& options) {
    LoadedWeights found;
    bool is_found = options.strict; // strict: both lists stay empty
    model.edit([&](torch::nn::Module& module) {
        found = load(module, path, options);
        is_found = true;
    });
    return is_found ? found : match(module_of(model), path, options).found;
}

inline void save(const std::filesystem::path& path, const torch::nn::Module& module) {
    const Format format = format_of(path);
    const auto complete = std::filesystem::absolute(path);
    const std::filesystem::path temporary =
        detail::concat(complete.string(), '.', detail::random_digits(), ".tmp");
    try {
        if (format == Format::torch) {
            checkpoint::write_torch_file(temporary, tensors_of(module));
        } else {
            checkpoint::safetensors::write(temporary, tensors_of(module), {{"format", "pt"}});
        }
        storage::rename_durably(temporary, complete);
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove(temporary, ignored);
        throw;
    }
}

} // namespace weights

/// Writes the model's parameters and buffers to `path`, whose extension selects the format:
/// .safetensors, or .pt, .pth or .bin for PyTorch. Atomic: on any failure the file keeps its old
/// content. Call it on one rank only. Throws CheckpointError: RT-K26 for other extensions, RT-K6,
/// RT-K20 or RT-K23 for tensors that the format cannot store; StorageError [RT-S3].
template <weights::ModuleLike Model>
void save_weights(const std::filesystem::path& path, const Model& model) {
    weights::save(path, weights::module_of(model));
}

/// Copies weights into the model's own tensors, converting floating-point types and devices. `path`
/// is a file from save_weights() or from Python, or a directory with model.safetensors or the
/// shards of model.safetensors.index.json. Executes nothing in the file, and loads nothing on an
/// error. Throws CheckpointError: RT-K24 names do not match and `strict` is set, RT-K25 a tensor
/// has a different shape or kind of type, RT-K2, RT-K21, RT-K22 or RT-K27 for files that are
/// damaged or of other content, RT-K26 for other paths; StorageError [RT-S3, RT-S4]. For the handle
/// of a sharded model, it is *collective* and loads in edit(). If only nodes without rank 0 cannot
/// read the file, it throws, but the weights are loaded.
template <weights::ModuleLike Model>
LoadedWeights load_weights(Model& model, const std::filesystem::path& path,
                           const LoadWeightsOptions& options = {}) {
    if constexpr (weights::Edited<Model>) {
        return weights::load_edited(model, path, options);
    } else {
        return weights::load(weights::module_of(model), path, options);
    }
}

} // namespace rtrain
