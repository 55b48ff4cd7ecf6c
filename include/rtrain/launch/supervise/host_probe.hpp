// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks which hosts answer: mpirun's launch agent (ssh, or its replacement) runs a command on
/// each.
#pragma once

#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/launch/supervise/host_list.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/machine.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// Addresses of this machine, as text.
[[nodiscard]] inline std::vector<std::string> own_addresses() {
    std::vector<std::string> addresses;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) {
        return addresses;
    }
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        std::array<char, INET6_ADDRSTRLEN> text{};
        const int family = one->ifa_addr != nullptr ? one->ifa_addr->sa_family : AF_UNSPEC;
        if (family == AF_INET) {
            sockaddr_in address{};
            std::memcpy(&address, one->ifa_addr, sizeof address);
            ::inet_ntop(family, &address.sin_addr, text.data(), text.size());
        } else if (family == AF_INET6) {
            sockaddr_in6 address{};
            std::memcpy(&address, one->ifa_addr, sizeof address);
            ::inet_ntop(family, &address.sin6_addr, text.data(), text.size());
        } else {
            continue;
        }
        addresses.emplace_back(text.data());
    }
    ::freeifaddrs(all);
    return addresses;
}

/// True if `host` is this machine.
[[nodiscard]] inline bool is_this_machine(const std::string& host) {
    const std::string name = without_user(host);
    const std::string own_name = storage::host_name();
    const auto addresses = own_addresses();
    return name == "localhost" || name == own_name ||
           name == own_name.substr(0, own_name.find('.')) ||
           std::find(addresses.begin(), addresses.end(), name) != addresses.end();
}

/// A command running on another host.
class HostProbe {
public:
    HostProbe(const std::string& agent, Host host) : host_(std::move(host)) {
        std::vector<std::string> words;
        // "ssh : rsh" means ssh, otherwise rsh
        auto text = detail::strict(std::istringstream(agent.substr(0, agent.find(':'))));
        for (std::string word; text >> word;) {
            words.push_back(word);
        }
        if (words.empty()) {
            return;
        }
        if (words[0].find('/') == std::string::npos) {
            const auto program = find_program(words[0]);
            if (!program) {
                return; // not a file in the working directory
            }
            words[0] = program->string();
        }
        words.push_back(host_.name);
        words.emplace_back(host_.slots ? "true" : "nproc");
        start(words);
    }
    HostProbe(const HostProbe&) = delete;
    HostProbe& operator=(const HostProbe&) = delete;
    HostProbe(HostProbe&& other) noexcept
        : host_(std::move(other.host_)), pid_(std::exchange(other.pid_, -1)),
          out_(std::exchange(other.out_, -1)), answered_(other.answered_) {}
    ~HostProbe() {
        if (pid_ > 0) {
            ::kill(-pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        if (out_ >= 0) {
            ::close(out_);
        }
    }

    /// Never blocks; true if the command has exited.
    [[nodiscard]] bool poll() {
        int raw = 0;
        if (pid_ > 0 && ::waitpid(pid_, &raw, WNOHANG) != 0) {
            pid_ = -1;
            answered_ = WIFEXITED(raw) && WEXITSTATUS(raw) == 0;
            if (answered_ && !host_.slots) {
                read_slots();
            }
        }
        return pid_ < 0;
    }

    /// The host with its slots, if it answered.
    [[nodiscard]] std::optional<Host> answer() const {
        return answered_ ? std::optional(host_) : std::nullopt;
    }

private:
    void start(const std::vector<std::string>& words) {
        // All memory is allocated before fork(): another thread may hold the allocator's lock.
        const auto arguments = pointers_to(words);
        std::array<int, 2> out{-1, -1};
        if (::pipe2(out.data(), O_CLOEXEC) != 0) {
            return;
        }
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::setsid(); // no terminal where ssh could prompt for a password
            const int nowhere = ::open("/dev/null", O_RDWR);
            ::dup2(nowhere, STDIN_FILENO);
            ::dup2(out[1], STDOUT_FILENO);
            ::dup2(nowhere, STDERR_FILENO);
            if (::getppid() == parent) {
                ::execv(arguments[0], arguments.data());
            }
            ::_exit(127);
        }
        ::close(out[1]);
        out_ = out[0];
    }

    void read_slots() {
        std::array<char, 32> text{};
        const auto length = ::read(out_, text.data(), text.size() - 1);
        const int processors = length > 0 ? std::atoi(text.data()) : 0;
        host_.slots = std::max(1, processors);
    }

    Host host_;
    pid_t pid_ = -1;
    int out_ = -1;
    bool answered_ = false;
};

/// Returns those of `hosts` that answer within `limit`, with their slots; this machine always does.
/// Probes all concurrently.
[[nodiscard]] inline std::vector<Host>
answering(const std::vector<Host>& hosts, const std::string& agent,
          std::chrono::milliseconds limit = std::chrono::seconds(5)) {
    std::vector<std::optional<Host>> answers(hosts.size());
    std::vector<std::pair<std::size_t, HostProbe>> probes;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (is_this_machine(hosts[i].name)) {
            answers[i] = hosts[i];
            if (!hosts[i].slots) {
                answers[i]->slots =
                    std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
            }
        } else {
            probes.emplace_back(i, HostProbe(agent, hosts[i]));
        }
    }
    const auto end = std::chrono::steady_clock::now() + limit;
    const auto all_ended = [&] {
        bool all = true;
        for (auto& [i, probe] : probes) {
            all = probe.poll() && all;
        }
        return all;
    };
    while (!all_ended() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (const auto& [i, probe] : probes) {
        answers[i] = probe.answer();
    }
    std::vector<Host> result;
    for (auto& answer : answers) {
        if (answer) {
            result.push_back(std::move(*answer));
        }
    }
    return result;
}

} // namespace rtrain::launch
