// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of which a node has one copy, whatever the number of its ranks. Each rank has it mapped
/// twice: at read() it can only be read, so that nobody changes by accident what others read, and
/// at write() it is written when all have agreed to.
#pragma once

#include <rtrain/comm/group.hpp>
#include <rtrain/comm/node.hpp>
#include <rtrain/comm/shared_memory.hpp>
#include <rtrain/process/read_only_memory.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace rtrain::comm {

class NodeArray {
public:
    using Part = process::ReadOnlyMemory::Part;

    /// Zeroed. `node`: the ranks that share it, *collectively*; null for one of its own. `parts`
    /// say what a fault in them means. Throws CommError [RT-X12].
    NodeArray(Group* node, std::size_t bytes, std::vector<Part> parts)
        : memory_(node != nullptr ? share_memory(*node, at_least_one(bytes))
                                  : SharedMemory::create(at_least_one(bytes))),
          read_(memory_.map_read_only()),
          listed_(read_, memory_.data(), memory_.size(), std::move(parts)) {
        memory_.close_file();
    }
    NodeArray(const NodeArray&) = delete;
    NodeArray& operator=(const NodeArray&) = delete;
    ~NodeArray() { ::munmap(read_, memory_.size()); }

    [[nodiscard]] std::byte* read() const noexcept { return read_; }
    [[nodiscard]] std::byte* write() const noexcept { return memory_.data(); }

private:
    [[nodiscard]] static std::size_t at_least_one(std::size_t bytes) {
        return bytes == 0 ? 1 : bytes;
    }

    SharedMemory memory_;
    std::byte* read_;
    process::ReadOnlyMemory listed_;
};

} // namespace rtrain::comm
