// SPDX-License-Identifier: Apache-2.0
/// @file
/// Contents of a checkpoint: files with their checksums, and the place of each tensor in them.
/// Every rank lists what it has written; the manifest combines all lists.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/different_parameters.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/format/safetensors_info.hpp>
#include <rtrain/storage/file/safe_name.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

struct FileRecord {
    std::string name; ///< relative to the checkpoint, '/' between directories
    std::uint64_t size = 0;
    std::vector<std::uint32_t> sums; ///< CRC-32C of each MiB, see ChunkSums

    friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct TensorRecord {
    /// Elements begin, begin + 1, ... of the whole, which the safetensors file `file` contains
    /// under the tensor's name.
    struct Piece {
        std::string file;
        std::int64_t begin = 0;
        std::int64_t count = 0;
        friend bool operator==(const Piece&, const Piece&) = default;
    };
    std::string type; ///< in safetensors' notation, "F32"
    std::vector<std::int64_t> shape;
    bool rows = false; ///< see Pieces::rows
    std::vector<Piece> pieces;

    friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

/// Checksum of a parameter that must be equal on all ranks.
struct ComparedSum {
    std::string name; ///< in rank 0's list
    std::uint32_t sum = 0;

    friend bool operator==(const ComparedSum&, const ComparedSum&) = default;
};

struct Contents {
    std::vector<FileRecord> files;
    std::map<std::string, TensorRecord> tensors;
    /// For rank 0, which compares them; not stored in a checkpoint.
    std::vector<ComparedSum> compared{};

    friend bool operator==(const Contents&, const Contents&) = default;
};

/// The product of a shape. Throws std::invalid_argument for negative sizes and beyond 2^62.
[[nodiscard]] inline std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    constexpr std::int64_t limit = std::int64_t{1} << 62;
    std::int64_t count = 1;
    bool is_empty = false;
    for (const std::int64_t size : shape) {
        const std::int64_t factor = std::max<std::int64_t>(size, 1); // strides have no zeros
        if (size < 0 || count > limit / factor) {
            throw std::invalid_argument("a shape has an impossible size");
        }
        count *= factor;
        is_empty = is_empty || size == 0;
    }
    return is_empty ? 0 : count;
}

/// Adds what another rank has written. Throws CheckpointError [RT-K5] if both have written a file
/// of the same name, [RT-K10] if they disagree about a tensor.
inline void merge(Contents& into, Contents from) {
    for (FileRecord& file : from.files) {
        for (const FileRecord& known : into.files) {
            if (known.name == file.name) {
                throw CheckpointError("RT-K5",
                                      detail::concat("two ranks wrote a file named \"", file.name,
                                                     "\"; put the rank into the name"));
            }
        }
        into.files.push_back(std::move(file));
    }
    for (auto& [name, tensor] : from.tensors) {
        const auto [known, added] = into.tensors.try_emplace(name, tensor);
        if (added) {
            continue;
        }
        TensorRecord& whole = known->second;
        if (whole.type != tensor.type || whole.shape != tensor.shape || whole.rows != tensor.rows) {
            throw CheckpointError("RT-K10", detail::concat("ranks disagree about the type or shape "
                                                           "of tensor \"",
                                                           name,
                                                           "\"; all must save the same "
                                                           "state"));
        }
        std::move(tensor.pieces.begin(), tensor.pieces.end(), std::back_inserter(whole.pieces));
    }
}

/// Throws ModelError [RT-M25] if rank `rank` has different parameters than rank 0.
inline void require_same_sums(const Contents& mine, const Contents& theirs, int rank) {
    const std::vector<ComparedSum>& all = mine.compared;
    std::vector<std::string> differ;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i >= theirs.compared.size() || theirs.compared[i].sum != all[i].sum) {
            differ.push_back(all[i].name);
        }
    }
    if (!differ.empty()) {
        detail::throw_different_parameters(differ.front(), static_cast<std::size_t>(rank),
                                           differ.size(), all.size());
    }
}

/// Completeness of a list: the contents of one rank or of all.
enum class Listed : unsigned char { by_one_rank, completely };

namespace internal {

/// Sorts the pieces of a tensor, and checks them. Throws std::invalid_argument.
inline void check_pieces(const std::string& name, TensorRecord& tensor,
                         const std::set<std::string>& files, Listed listed) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const auto& a, const auto& b) {
        return std::pair(a.begin, a.count) < std::pair(b.begin, b.count); // empty ones first
    });
    std::int64_t end = 0;
    std::set<std::string> used;
    for (const TensorRecord::Piece& piece : tensor.pieces) {
        const bool fits = listed == Listed::completely ? piece.begin == end : piece.begin >= end;
        if (!fits || piece.count < 0 ||
            piece.count > std::numeric_limits<std::int64_t>::max() - piece.begin) {
            throw std::invalid_argument("the pieces of tensor \"" + name +
                                        "\" leave a gap or overlap");
        }
        if (!files.contains(piece.file)) {
            throw std::invalid_argument(
                "tensor \"" + name + "\" is in a file that is not listed: \"" + piece.file + "\"");
        }
        if (!used.insert(piece.file).second) { // a file has one tensor of that name
            throw std::invalid_argument("tensor \"" + name + "\" has two pieces in \"" +
                                        piece.file + "\"");
        }
        end = piece.begin + piece.count;
    }
    const std::int64_t size = element_count(tensor.shape);
    if (end > size || (listed == Listed::completely && (end != size || used.empty()))) {
        throw std::invalid_argument("the pieces of tensor \"" + name +
                                    "\" do not make up its shape");
    }
}

} // namespace internal

/// Sorts the pieces of each tensor. Throws std::invalid_argument if they overlap, name a file that
/// is not listed, or, in a complete list, leave a gap.
inline void check(Contents& contents, Listed listed) {
    constexpr std::size_t most_dimensions = 64; // libtorch's limit
    std::set<std::string> files;
    for (const FileRecord& file : contents.files) {
        if (!is_safe_name(file.name)) {
            throw std::invalid_argument("a file has an invalid name: \"" + file.name + "\"");
        }
        if (!files.insert(file.name).second) {
            throw std::invalid_argument("file \"" + file.name + "\" is listed twice");
        }
        if (file.sums.size() !=
            file.size / ChunkSums::chunk + (file.size % ChunkSums::chunk == 0 ? 0U : 1U)) {
            throw std::invalid_argument("file \"" + file.name + "\" has too many or few checksums");
        }
    }
    for (auto& [name, tensor] : contents.tensors) {
        safetensors::check_tensor_name(name);
        if (tensor.shape.size() > most_dimensions || (tensor.rows && tensor.shape.empty())) {
            throw std::invalid_argument("tensor \"" + name + "\" has an impossible shape");
        }
        internal::check_pieces(name, tensor, files, listed);
    }
}

[[nodiscard]] inline boost::json::object to_json(const Contents& contents) {
    boost::json::array files;
    for (const FileRecord& file : contents.files) {
        files.push_back({{"name", file.name},
                         {"size", file.size},
                         {"crc32c", boost::json::array(file.sums.begin(), file.sums.end())}});
    }
    boost::json::object tensors;
    for (const auto& [name, tensor] : contents.tensors) {
        boost::json::array pieces;
        for (const auto& piece : tensor.pieces) {
            pieces.push_back(
                {{"file", piece.file}, {"begin", piece.begin}, {"count", piece.count}});
        }
        tensors[name] = {{"type", tensor.type},
                         {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
                         {"rows", tensor.rows},
                         {"pieces", std::move(pieces)}};
    }
    boost::json::object json{{"chunk_bytes", ChunkSums::chunk},
                             {"files", std::move(files)},
                             {"tensors", std::move(tensors)}};
    if (!contents.compared.empty()) {
        auto& sums = json["compared"].emplace_array();
        for (const ComparedSum& compared : contents.compared) {
            sums.push_back(compared.sum);
        }
    }
    return json;
}

/// Throws std::exception if the JSON is not in the form of to_json(), or is inconsistent.
[[nodiscard]] inline Contents contents_from(const boost::json::object& json, Listed listed) {
    if (json.at("chunk_bytes").to_number<std::uint64_t>() != ChunkSums::chunk) {
        throw std::invalid_argument("its checksums are of chunks of a different size");
    }
    Contents contents;
    for (const auto& item : json.at("files").as_array()) {
        FileRecord file{std::string(item.at("name").as_string()),
                        item.at("size").to_number<std::uint64_t>(),
                        {}};
        for (const auto& sum : item.at("crc32c").as_array()) {
            file.sums.push_back(sum.to_number<std::uint32_t>());
        }
        contents.files.push_back(std::move(file));
    }
    for (const auto& item : json.at("tensors").as_object()) {
        const auto& fields = item.value().as_object();
        TensorRecord tensor{
            std::string(fields.at("type").as_string()), {}, fields.at("rows").as_bool(), {}};
        for (const auto& size : fields.at("shape").as_array()) {
            tensor.shape.push_back(size.to_number<std::int64_t>());
        }
        for (const auto& piece : fields.at("pieces").as_array()) {
            tensor.pieces.push_back({std::string(piece.at("file").as_string()),
                                     piece.at("begin").to_number<std::int64_t>(),
                                     piece.at("count").to_number<std::int64_t>()});
        }
        contents.tensors.emplace(item.key(), std::move(tensor));
    }
    if (const auto* const sums = json.if_contains("compared")) {
        for (const auto& sum : sums->as_array()) {
            contents.compared.push_back({{}, sum.to_number<std::uint32_t>()});
        }
    }
    check(contents, listed);
    return contents;
}

} // namespace rtrain::checkpoint
