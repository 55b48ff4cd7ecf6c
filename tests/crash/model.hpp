// SPDX-License-Identifier: Apache-2.0
/// @file
/// A disk that keeps no promise but POSIX's: what may be on it when the power fails at some point
/// of a trace. As ALICE does it (Pillai et al., OSDI 2014).
///
/// - What was written to a file is durable when that file has been synced since. Before, each
///   512-byte block of a write may be there, may be what it was, or may be zeroes, and the size may
///   have grown or not, whatever became of other writes.
/// - A name made, renamed or removed in a directory is durable when that directory has been synced
///   since; syncing the file itself does not do. Before, any subset of such changes may have been
///   made, in whatever order the program made them.
/// - A rename is whole or absent.
#pragma once

#include "trace.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crash {

/// What became of an operation that was not yet durable.
enum class Fate : unsigned char {
    lost,
    done,
    torn,     ///< of a write: some of its blocks
    size_only ///< of a write: the file has grown, its bytes are zeroes
};

/// A state of the disk: which operations of a trace have reached it.
struct CrashState {
    std::size_t point = 0;                           ///< the power fails before this operation
    std::vector<std::pair<std::size_t, Fate>> fates; ///< of each operation that is not durable
    std::uint64_t seed = 0;                          ///< of the blocks that are torn
};

class Disk {
public:
    explicit Disk(const Trace& trace) : trace_(trace), durable_(trace.before) {}

    /// Takes in the next operation.
    void advance() {
        const Operation& operation = trace_.operations[point_];
        using Kind = Operation::Kind;
        if (operation.kind == Kind::create_file || operation.kind == Kind::create_directory) {
            durable_[operation.object].is_directory = operation.kind == Kind::create_directory;
        }
        if (operation.kind == Kind::sync) {
            sync(operation.object);
        } else if (operation.kind != Kind::mark) {
            pending_.push_back(point_);
        }
        ++point_;
    }

    [[nodiscard]] std::size_t point() const { return point_; }
    /// The operations that are not durable now.
    [[nodiscard]] const std::vector<std::size_t>& pending() const { return pending_; }
    [[nodiscard]] bool is_write(std::size_t index) const {
        return trace_.operations[index].kind == Operation::Kind::write;
    }

    /// The tree that a state at this point leaves.
    [[nodiscard]] Tree tree(const CrashState& state) const {
        Tree tree = durable_;
        for (const auto& [index, fate] : state.fates) {
            if (fate != Fate::lost) {
                apply(tree, trace_.operations[index], fate, state.seed + index);
            }
        }
        return tree;
    }

private:
    static constexpr std::size_t block = 512;

    static void apply(Tree& tree, const Operation& operation, Fate fate, std::uint64_t seed) {
        using Kind = Operation::Kind;
        switch (operation.kind) {
        case Kind::create_file:
        case Kind::create_directory:
            tree[operation.directory].entries[operation.name] = operation.object;
            break;
        case Kind::write:
            write(tree[operation.object].content, operation, fate, seed);
            break;
        case Kind::truncate:
            tree[operation.object].content.resize(operation.offset);
            break;
        case Kind::rename:
            // Also from where an earlier rename, which was lost, would have moved it away.
            for (const Object directory : {operation.directory, operation.to_directory}) {
                std::erase_if(tree[directory].entries,
                              [&](const auto& entry) { return entry.second == operation.object; });
            }
            tree[operation.to_directory].entries[operation.to_name] = operation.object;
            break;
        case Kind::remove:
            std::erase_if(tree[operation.directory].entries, [&](const auto& entry) {
                return entry.first == operation.name && entry.second == operation.object;
            });
            break;
        case Kind::sync:
        case Kind::mark:
            break;
        }
    }

    static void write(std::string& content, const Operation& operation, Fate fate,
                      std::uint64_t seed) {
        const std::string& data = operation.data;
        const std::size_t old_size = content.size();
        const std::size_t end = operation.offset + data.size();
        if (fate == Fate::done) {
            content.resize(std::max(old_size, end));
            content.replace(operation.offset, data.size(), data);
            return;
        }
        if (fate == Fate::size_only) {
            content.resize(std::max(old_size, end));
            return;
        }
        std::mt19937_64 random(seed);
        std::size_t size = end;
        if (random() % 3 == 0) {
            size = operation.offset + random() % (data.size() + 1);
        }
        content.resize(std::max(old_size, size));
        for (std::size_t at = operation.offset; at < size;) {
            const std::size_t next = std::min(size, (at / block + 1) * block);
            const auto choice = random() % 4;
            if (choice < 2) {
                content.replace(at, next - at, data, at - operation.offset, next - at);
            } else if (choice == 2) {
                content.replace(at, next - at, std::string(next - at, '\0'));
            }
            at = next;
        }
    }

    void sync(Object object) {
        std::erase_if(pending_, [&](std::size_t index) {
            const Operation& operation = trace_.operations[index];
            if (!is_durable_by(operation, object)) {
                return false;
            }
            apply(durable_, operation, Fate::done, 0);
            return true;
        });
    }

    /// A rename from one directory to another is durable when its target is.
    static bool is_durable_by(const Operation& operation, Object synced) {
        switch (operation.kind) {
        case Operation::Kind::write:
        case Operation::Kind::truncate:
            return operation.object == synced;
        case Operation::Kind::rename:
            return operation.to_directory == synced;
        default:
            return operation.directory == synced;
        }
    }

    const Trace& trace_;
    Tree durable_; ///< with every object, whether it has a name or not
    std::vector<std::size_t> pending_;
    std::size_t point_ = 0;
};

/// The state in which nothing is lost.
[[nodiscard]] inline CrashState everything(const Disk& disk) {
    CrashState state{disk.point(), {}, 0};
    for (const std::size_t index : disk.pending()) {
        state.fates.emplace_back(index, Fate::done);
    }
    return state;
}

/// The crash states at one point, one after the other without end: nothing and everything of what
/// is pending; only one, all but one, only two, ... three; then at random.
class States {
public:
    /// What becomes of the operations in `focus`, each for itself, comes first.
    States(const Disk& disk, std::uint64_t seed, const std::vector<std::size_t>& focus = {})
        : point_(disk.point()), seed_(seed * 1'000'003 + disk.point()), random_(seed_) {
        for (const std::size_t index : disk.pending()) {
            if (std::find(focus.begin(), focus.end(), index) != focus.end()) {
                const auto member = static_cast<std::uint32_t>(pending_.size());
                listed_.push_back({{member}, 1, true});
                listed_.push_back({{member}, 1, false});
            }
            pending_.emplace_back(index, disk.is_write(index));
        }
        for (std::size_t size = 0; size <= std::min(largest_subset, pending_.size()); ++size) {
            list_subsets(size);
        }
    }

    /// False when all states have come: nothing is pending.
    [[nodiscard]] bool has_next() const { return next_ == 0 || !pending_.empty(); }

    [[nodiscard]] CrashState next() {
        const std::size_t number = next_++;
        CrashState state{point_, {}, seed_ + number * 7919};
        const auto density = random_() % 3;
        for (std::uint32_t i = 0; i < pending_.size(); ++i) {
            const auto [index, is_write] = pending_[i];
            const bool done = number < listed_.size()
                                  ? (listed_[number].contains(i) != listed_[number].lost)
                                  : random_() % 4 <= density;
            Fate fate = done ? Fate::done : Fate::lost;
            // A write that is not there may be there in part, except in the plainest states.
            if (number >= 2 && !done && is_write) {
                const auto draw = random_() % 4;
                fate = draw < 2 ? Fate::torn : (draw == 2 ? Fate::size_only : Fate::lost);
            }
            state.fates.emplace_back(index, fate);
        }
        return state;
    }

private:
    static constexpr std::size_t largest_subset = 3;
    static constexpr std::size_t most_subsets = 2000; ///< of a size; of more, so many at random

    /// Up to three of what is pending, which are lost, or else alone are done.
    struct Subset {
        std::array<std::uint32_t, largest_subset> members{};
        std::uint32_t size = 0;
        bool lost = false;
        [[nodiscard]] bool contains(std::uint32_t member) const {
            return std::find(members.begin(), members.begin() + size, member) !=
                   members.begin() + size;
        }
    };

    void list_subsets(std::size_t size) {
        std::vector<Subset> subsets;
        Subset subset{.members = {0, 1, 2}, .size = static_cast<std::uint32_t>(size)};
        const auto count = static_cast<std::uint32_t>(pending_.size());
        for (bool more = true; more && subsets.size() < most_subsets;) {
            subsets.push_back(subset);
            more = advance(subset, count);
        }
        if (subsets.size() == most_subsets) {
            for (Subset& one : subsets) {
                std::generate_n(one.members.begin(), size,
                                [&] { return static_cast<std::uint32_t>(random_() % count); });
            }
        }
        std::shuffle(subsets.begin(), subsets.end(), random_);
        for (Subset& one : subsets) {
            for (const bool lost : {false, true}) {
                one.lost = lost;
                listed_.push_back(one);
            }
        }
    }

    /// The next subset in lexicographic order; false behind the last.
    static bool advance(Subset& subset, std::uint32_t count) {
        for (std::uint32_t i = subset.size; i-- > 0;) {
            if (++subset.members[i] <= count - (subset.size - i)) {
                for (std::uint32_t j = i + 1; j < subset.size; ++j) {
                    subset.members[j] = subset.members[j - 1] + 1;
                }
                return true;
            }
        }
        return false;
    }

    std::size_t point_;
    std::vector<std::pair<std::size_t, bool>> pending_; ///< operations; whether they are writes
    std::uint64_t seed_;
    std::mt19937_64 random_;
    std::vector<Subset> listed_;
    std::size_t next_ = 0;
};

/// Writes what has a name into a directory that does not exist yet.
inline void materialise(const Tree& tree, const std::filesystem::path& path, Object object = 0) {
    const Node& node = tree.at(object);
    if (!node.is_directory) {
        std::ofstream(path, std::ios::binary) << node.content;
        return;
    }
    std::filesystem::create_directory(path);
    for (const auto& [name, child] : node.entries) {
        materialise(tree, path / name, child);
    }
}

/// Equal for equal trees, whatever their objects' numbers.
[[nodiscard]] inline std::uint64_t hash_of(const Tree& tree, Object object = 0) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto add = [&](std::string_view text) {
        for (const char c : text) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        }
        hash = (hash ^ text.size()) * 0x100000001b3U;
    };
    const Node& node = tree.at(object);
    add(node.is_directory ? "directory" : "file");
    add(node.content);
    for (const auto& [name, child] : node.entries) {
        add(name);
        hash = (hash ^ hash_of(tree, child)) * 0x100000001b3U;
    }
    return hash;
}

} // namespace crash
