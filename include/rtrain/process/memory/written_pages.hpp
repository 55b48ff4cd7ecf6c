// SPDX-License-Identifier: Apache-2.0
/// @file
/// The pages of a private mapping of shared memory that this process has written, which are its own
/// copies since, according to the kernel's page map.
#pragma once

#include <rtrain/process/os/descriptor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace rtrain::process {

class WrittenPages {
public:
    /// Bytes of the mapping, from its begin.
    struct Range {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    /// The mapping begins on a page and outlives this object.
    WrittenPages(std::byte* mapping, std::size_t bytes)
        : mapping_(mapping), bytes_(bytes),
          map_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

    /// Returns consecutive ranges of whole pages; nullopt if the kernel does not report them. Costs
    /// 30 ns a page, except where no page of this process has faulted since there were none.
    [[nodiscard]] std::optional<std::vector<Range>> find() {
        const auto faults = faults_of_process(); // before looking: later ones count next time
        if (faults == none_at_) {
            return std::vector<Range>();
        }
        const auto found = look();
        none_at_ = found && found->empty() ? faults : -1;
        return found;
    }
    /// Makes the pages the shared memory's again.
    void drop(const std::vector<Range>& ranges) const {
        for (const Range& range : ranges) {
            (void)::madvise(mapping_ + range.begin, range.end - range.begin, MADV_DONTNEED);
        }
    }

private:
    [[nodiscard]] std::optional<std::vector<Range>> look() const {
        std::vector<Range> found;
        std::array<std::uint64_t, 4096> entries; // NOLINT: filled by read
        const auto first = reinterpret_cast<std::uintptr_t>(mapping_) / page;
        const std::size_t pages = (bytes_ + page - 1) / page;
        for (std::size_t done = 0; done < pages;) {
            const std::size_t count = std::min(entries.size(), pages - done);
            const auto got = ::pread(map_.get(), entries.data(), count * sizeof(entries[0]),
                                     static_cast<off_t>((first + done) * sizeof(entries[0])));
            if (got != static_cast<ssize_t>(count * sizeof(entries[0]))) {
                return std::nullopt;
            }
            for (std::size_t i = 0; i < count; ++i) {
                if (is_written(entries[i])) {
                    add(found, (done + i) * page);
                }
            }
            done += count;
        }
        return found;
    }
    [[nodiscard]] static long faults_of_process() {
        struct rusage used {};
        return ::getrusage(RUSAGE_SELF, &used) == 0 ? used.ru_minflt + used.ru_majflt : -2;
    }

    static inline const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

    /// Bits of Documentation/admin-guide/mm/pagemap.rst: private copies are anonymous memory.
    [[nodiscard]] static bool is_written(std::uint64_t entry) {
        constexpr int present = 63;
        constexpr int swapped = 62;
        constexpr int of_file = 61;
        const auto has = [entry](int bit) { return ((entry >> bit) & 1U) != 0; };
        return (has(present) || has(swapped)) && !has(of_file);
    }
    static void add(std::vector<Range>& found, std::size_t begin) {
        if (!found.empty() && found.back().end == begin) {
            found.back().end += page;
        } else {
            found.push_back({begin, begin + page});
        }
    }

    std::byte* mapping_;
    std::size_t bytes_;
    Descriptor map_;
    long none_at_ = -1; ///< faults of the process when no page was written; -1: some may be
};

} // namespace rtrain::process
