// SPDX-License-Identifier: Apache-2.0
/// @file
/// The choice of the GPU that a rank computes on. One rule, as in Ray Train: ranks of a node take
/// its GPUs in the order of their ids, lowest first; ranks share a GPU only if gpus_per_worker
/// allows it.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::backend {

/// The information about a node from which its ranks choose.
struct DeviceRequest {
    /// CUDA_VISIBLE_DEVICES of the node's ranks, by local rank; empty optional: not set. A launcher
    /// such as srun may have assigned different GPUs to each rank.
    std::vector<std::optional<std::string>> visible{};
    int local_rank = 0;
    int devices = 0; ///< that this rank can use
    double gpus_per_worker = 1;
    std::optional<int> fixed{}; ///< the user's choice, an index among `devices`
    /// PCI addresses of the devices of the node's ranks, by local rank; empty if CUDA does not
    /// report them. A cgroup gives each rank its own GPU under the same number.
    std::vector<std::vector<std::string>> addresses{};
};

/// A GPU as CUDA_VISIBLE_DEVICES names it: a number, "GPU-<uuid>" or "MIG-<uuid>".
struct NamedDevice {
    int index;
    std::string name;
};

/// The first `devices` entries of a list, as CUDA numbers them, in the order in which ranks take
/// them: by number, or as listed when there are names.
[[nodiscard]] inline std::vector<NamedDevice>
devices_in_order(const std::optional<std::string>& visible, int devices) {
    std::vector<NamedDevice> listed;
    std::string_view rest = visible ? *visible : std::string_view{};
    bool numbers = true;
    for (int index = 0; index < devices; ++index) {
        std::string name = std::to_string(index);
        if (visible && !rest.empty()) {
            const std::size_t comma = rest.find(',');
            std::string_view entry = rest.substr(0, comma);
            rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
            entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
            entry = entry.substr(0, entry.find(' '));
            name = entry;
        }
        numbers = numbers && !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
                      return c >= '0' && c <= '9';
                  });
        listed.push_back({index, std::move(name)});
    }
    if (numbers) {
        std::stable_sort(listed.begin(), listed.end(), [](const auto& a, const auto& b) {
            return std::stoi(a.name) < std::stoi(b.name);
        });
    }
    return listed;
}

/// True if two ranks of the node choose from the same list of devices.
[[nodiscard]] inline bool same_devices(const DeviceRequest& request, std::size_t one,
                                       std::size_t other) {
    return request.visible[one] == request.visible[other] &&
           (request.addresses.empty() || request.addresses[one] == request.addresses[other]);
}

/// Position in devices_in_order() that `local_rank` takes among the ranks that see the same list.
[[nodiscard]] inline std::size_t device_position(const DeviceRequest& request,
                                                 std::size_t local_rank) {
    std::size_t before = 0;
    for (std::size_t other = 0; other < local_rank; ++other) {
        before += same_devices(request, other, local_rank) ? 1U : 0U;
    }
    if (request.gpus_per_worker >= 1) {
        return before * static_cast<std::size_t>(request.gpus_per_worker);
    }
    constexpr double rounding = 1e-6; // three ranks of 0.3333333 share one
    const double on_each = std::floor(1 / request.gpus_per_worker + rounding);
    return static_cast<std::size_t>(static_cast<double>(before) / on_each);
}

/// Index, among the devices that this rank can use, of the one it takes. Throws ConfigError: RT-N2
/// too few GPUs for the node's ranks, RT-N3 gpus_per_worker, RT-N4 the fixed choice. `devices` is
/// at least 1.
[[nodiscard]] inline int choose_device(const DeviceRequest& request) {
    using detail::concat;
    const double share = request.gpus_per_worker;
    if (!(share > 0) || !std::isfinite(share) || (share > 1 && share != std::floor(share))) {
        throw ConfigError("RT-N3", concat("gpus_per_worker is ", share,
                                          "; expected a fraction of 1, or a whole number"));
    }
    if (request.fixed) {
        if (*request.fixed < 0 || *request.fixed >= request.devices) {
            throw ConfigError("RT-N4", concat("Nccl::Options::device is ", *request.fixed,
                                              "; this rank has ", request.devices,
                                              " GPUs, numbered from 0"));
        }
        return *request.fixed;
    }
    const auto mine = static_cast<std::size_t>(request.local_rank);
    const auto& visible = request.visible;
    const std::vector<NamedDevice> devices = devices_in_order(visible[mine], request.devices);
    const std::size_t position = device_position(request, mine);
    const double needed = std::max(1.0, share);
    if (static_cast<double>(position) + needed > static_cast<double>(devices.size())) {
        int ranks = 0;
        for (std::size_t other = 0; other < visible.size(); ++other) {
            ranks += same_devices(request, other, mine) ? 1 : 0;
        }
        throw ConfigError("RT-N2", concat(ranks, " ranks of this node share ", devices.size(),
                                          " GPU(s) (CUDA_VISIBLE_DEVICES ",
                                          visible[mine] ? *visible[mine] : "is not set", ") at ",
                                          share, " GPU(s) a rank, and none is left for local rank ",
                                          request.local_rank,
                                          "; start fewer ranks on a node, or let ranks share with "
                                          "ScalingConfig::gpus_per_worker = 0.5 or less"));
    }
    return devices[position].index;
}

/// Distinguishes a rank's GPU from the others of its node: its name in CUDA_VISIBLE_DEVICES and its
/// PCI address, either of which may be ambiguous.
[[nodiscard]] inline std::string identity_of(const DeviceRequest& request, int index) {
    const auto mine = static_cast<std::size_t>(request.local_rank);
    std::string name;
    for (const NamedDevice& device : devices_in_order(request.visible[mine], request.devices)) {
        name = device.index == index ? device.name : name;
    }
    const auto at = static_cast<std::size_t>(index);
    const bool known = mine < request.addresses.size() && at < request.addresses[mine].size();
    return name + "@" + (known ? request.addresses[mine][at] : "");
}

/// The ranks of a node that compute on one GPU.
struct GpuShare {
    int ranks = 1;
    int place = 0; ///< position of this rank among them
};

/// `identities`: the GPUs of the node's ranks, by local rank.
[[nodiscard]] inline GpuShare share_of(const std::vector<std::string>& identities, int local_rank) {
    const auto mine = static_cast<std::size_t>(local_rank);
    const auto same = [&](std::size_t ranks) {
        return static_cast<int>(std::count(identities.begin(),
                                           identities.begin() + static_cast<std::ptrdiff_t>(ranks),
                                           identities[mine]));
    };
    return {.ranks = same(identities.size()), .place = same(mine)};
}

} // namespace rtrain::backend
