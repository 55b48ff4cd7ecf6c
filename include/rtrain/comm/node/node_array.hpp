// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory with one copy per node, whatever the number of its ranks. Each rank maps it twice: read()
/// is read-only or private, so that no rank accidentally changes what others read, and write() is
/// written when all have agreed to.
#pragma once

#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/world/group.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rtrain::comm {

class NodeArray {
public:
    using Part = process::ReadOnlyMemory::Part;

    /// Zeroed. `node`: the ranks that share it, *collectively*; null for private memory. `parts`
    /// explain a fault in them; without, what a rank writes at read() stays in its process. Throws
    /// CommError [RT-X12].
    NodeArray(Group* node, std::size_t bytes, std::optional<std::vector<Part>> parts)
        : memory_(node != nullptr ? share_memory(*node, in_lines(bytes) + line, true)
                                  : SharedMemory::create(in_lines(bytes) + line)),
          read_(parts ? memory_.map_read_only() : memory_.map_private()) {
        if (parts) {
            listed_.emplace(read_, memory_.data(), in_lines(bytes), std::move(*parts),
                            loads_in(memory_.data() + in_lines(bytes)));
        }
        memory_.close_file();
    }
    NodeArray(const NodeArray&) = delete;
    NodeArray& operator=(const NodeArray&) = delete;
    ~NodeArray() { ::munmap(read_, memory_.size()); }

    [[nodiscard]] std::byte* read() const noexcept { return read_; }
    [[nodiscard]] std::byte* write() const noexcept { return memory_.data(); }

private:
    static constexpr std::size_t line = 64; ///< bytes of a cache line

    /// Located after the readable part; zero when the memory was created.
    [[nodiscard]] static process::ReadOnlyMemory::Loads* loads_in(std::byte* memory) {
        return reinterpret_cast<process::ReadOnlyMemory::Loads*>(memory);
    }
    [[nodiscard]] static std::size_t in_lines(std::size_t bytes) {
        return (bytes + line - 1) / line * line;
    }

    SharedMemory memory_;
    std::byte* read_;
    std::optional<process::ReadOnlyMemory> listed_;
};

} // namespace rtrain::comm
