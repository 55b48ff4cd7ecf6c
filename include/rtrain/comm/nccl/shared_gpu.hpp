// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connects ranks that share a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace rtrain::comm {

/// While it exists, NCCL connects ranks that share a GPU: they pretend to be on different hosts,
/// and communicate over sockets. NCCL rejects two ranks on one GPU. Child processes and later
/// communicators do not inherit the variables. Variables that the user has set stay.
class SharedGpu {
public:
    explicit SharedGpu(const std::string& host_id) {
        if (!host_id.empty()) {
            set(0, host_id.c_str());
            set(1, "1"); // from NCCL 2.29 on
        }
    }
    SharedGpu(const SharedGpu&) = delete;
    SharedGpu& operator=(const SharedGpu&) = delete;
    ~SharedGpu() {
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (is_set_[i]) {
                ::unsetenv(names[i]);
            }
        }
    }

private:
    void set(std::size_t i, const char* value) {
        is_set_[i] = std::getenv(names[i]) == nullptr;
        ::setenv(names[i], value, /*overwrite=*/0);
    }
    static constexpr std::array names{"NCCL_HOSTID", "NCCL_MULTI_RANK_GPU_ENABLE"};
    std::array<bool, names.size()> is_set_{};
};

} // namespace rtrain::comm
