// SPDX-License-Identifier: Apache-2.0
/// @file
/// The preload server of a node in a run on several: its first rank starts it, and it stays for
/// those of later starts, until the run ends.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <map>
#include <string>
#include <vector>

namespace rtrain::program {

struct NodeServer {
    std::string address;              ///< address_for() the run
    std::string lease;                ///< address of the driver's RunLease
    std::vector<std::string> command; ///< of the ranks; its first word is a path
    std::vector<std::string> modules;
    std::map<std::string, std::string> variables; ///< of the ranks, as far as they are the same

    /// For connect_to_preload(). `run`: an unguessable name. Processes that cannot see each other,
    /// or each other's files, get different addresses.
    [[nodiscard]] static std::string address_for(const std::string& run);

    /// Starts the server, unless there is one, with a process that ends it with the run. Call while
    /// this process has one thread, and after AwaitedSignals::block().
    void start() const;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/process/node_server_definitions.hpp>
#endif
