// SPDX-License-Identifier: Apache-2.0
// The faults, and the functions of libc and MPI through which they reach rtrain at work: defined in
// the executable, they come before those of the libraries.
#include "fault.hpp"

#include <rtrain/process/os/environment.hpp>

#include <mpi.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace chaos {
namespace {

using namespace std::chrono_literals;

std::atomic<long> current_step = 0;
std::atomic<bool> disk_is_full = false;
std::atomic<bool> loss_is_nan = false;
std::string storage; // NOLINT: set before threads are started

Fault parse(const char* text) {
    Fault fault;
    if (text == nullptr || *text == '\0') {
        return fault;
    }
    std::istringstream words(text);
    std::string word;
    std::getline(words, word, ':');
    const auto at = word.find('@');
    fault.kind = word.substr(0, at);
    fault.phase = at == std::string::npos ? "" : word.substr(at + 1);
    bool understood = !fault.phase.empty();
    while (std::getline(words, word, ':')) {
        const auto equals = word.find('=');
        const auto name = word.substr(0, equals);
        const auto value = equals == std::string::npos ? "" : word.substr(equals + 1);
        if (name == "rank") {
            fault.rank = value == "driver" ? Fault::driver : std::stoi(value);
        } else if (name == "step") {
            fault.step = std::stol(value);
        } else if (name == "once") {
            fault.once = value;
        } else if (name == "nth") {
            fault.nth = std::stol(value);
        } else if (name == "threads" && value == "others") {
            fault.others = true;
        } else {
            understood = false;
        }
    }
    if (!understood) {
        std::fprintf(stderr, "RTRAIN_CHAOS=%s is not kind@phase:rank=R:step=S:once=FILE\n", text);
        std::_Exit(2);
    }
    return fault;
}

/// False when another attempt, or process, was first.
bool may_strike(const std::string& once) {
    if (once.empty()) {
        return true;
    }
    const int file = ::open(once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        return false;
    }
    ::close(file);
    return true;
}

[[noreturn]] void sleep_for_ever() {
    for (;;) {
        std::this_thread::sleep_for(1h);
    }
}

/// Takes memory until there is none. It was scarce for a moment only: the limit is lifted again.
[[noreturn]] void run_out_of_memory() {
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t used = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    constexpr rlim_t room = rlim_t{32} << 20;
    rlimit tight = before;
    tight.rlim_cur = used + room;
    ::setrlimit(RLIMIT_AS, &tight);
    struct Lift {
        rlimit limit;
        ~Lift() { ::setrlimit(RLIMIT_AS, &limit); }
    } const lift{before};
    std::vector<std::unique_ptr<char[]>> blocks;
    blocks.reserve(4096);
    for (std::size_t bytes = std::size_t{1} << 20;;) {
        blocks.push_back(std::make_unique<char[]>(bytes));
    }
}

std::atomic<long> allocations_left = 0; // until one fails; 0: none will
thread_local bool has_come_by = false;
thread_local bool uncounted = false; // this thread is at work for the harness

void let_an_allocation_fail(const Fault& told) {
    if (allocations_left == 0 && ::access(told.once.c_str(), F_OK) != 0) {
        has_come_by = true;
        allocations_left = told.nth;
    }
}

/// Throws std::bad_alloc when this one is to fail. Itself, it allocates nothing.
void count_allocation() {
    if (allocations_left.load(std::memory_order_relaxed) <= 0 || uncounted) {
        return;
    }
    const Fault& told = fault();
    if (has_come_by != told.others && allocations_left.fetch_sub(1) == 1 && may_strike(told.once)) {
        std::fprintf(stderr, "chaos: allocation %ld behind %s fails\n", told.nth,
                     told.phase.c_str());
        throw std::bad_alloc();
    }
}

/// The harness strikes from outside while this process waits here.
void tell_and_wait(const std::string& file) {
    constexpr int tenths = 300;
    for (int i = 0; i < tenths && !std::filesystem::exists(file + ".go"); ++i) {
        std::this_thread::sleep_for(100ms);
    }
}

void strike(const Fault& fault) {
    const std::string_view kind = fault.kind;
    std::fprintf(stderr, "chaos: %s in %s at step %ld\n", fault.kind.c_str(), fault.phase.c_str(),
                 current_step.load());
    if (kind == "kill") {
        std::raise(SIGKILL);
    } else if (kind == "stop") {
        std::raise(SIGSTOP);
    } else if (kind == "deadlock") {
        sleep_for_ever();
    } else if (kind == "spin") {
        for (std::atomic<long> turns = 0;; ++turns) {
        }
    } else if (kind == "exception") {
        throw std::runtime_error("chaos: an exception");
    } else if (kind == "exit") {
        std::exit(0);
    } else if (kind == "segfault") {
        std::raise(SIGSEGV);
    } else if (kind == "memory") {
        run_out_of_memory();
    } else if (kind == "disk") {
        disk_is_full = true;
    } else if (kind == "nan") {
        loss_is_nan = true;
    } else if (kind == "tell") {
        tell_and_wait(fault.once);
    } else {
        std::fprintf(stderr, "chaos: there is no fault \"%s\"\n", fault.kind.c_str());
        std::_Exit(2);
    }
}

/// The path below the watched directory; empty when the file is elsewhere.
std::string watched(int descriptor) {
    if (storage.empty()) {
        return "";
    }
    struct UnsizedDataset {
        UnsizedDataset() { uncounted = true; }
        ~UnsizedDataset() { uncounted = false; }
    } const for_the_harness;
    std::array<char, 4096> buffer{};
    const auto link = "/proc/self/fd/" + std::to_string(descriptor);
    const long length = ::syscall(SYS_readlink, link.c_str(), buffer.data(), buffer.size());
    const std::string_view path(buffer.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    return path.starts_with(storage) ? std::string(path.substr(storage.size())) : "";
}

} // namespace

const Fault& fault() {
    // Never destroyed: allocations are counted until the process is gone.
    static const Fault& told = *new Fault(parse(std::getenv("RTRAIN_CHAOS")));
    return told;
}

void point(const char* phase) {
    const Fault& told = fault();
    const bool here =
        told.phase == phase && current_step >= told.step &&
        (told.rank == -1 ||
         told.rank == rtrain::launch::env_int("OMPI_COMM_WORLD_RANK").value_or(Fault::driver));
    if (here && told.kind == "bad_alloc") {
        let_an_allocation_fail(told);
    } else if (here && may_strike(told.once)) {
        strike(told);
    }
}

void set_step(long step) {
    current_step = step;
}

void watch_storage(const std::string& directory) {
    storage = directory;
}

void begin_attempt() {
    disk_is_full = false;
}

bool next_loss_is_nan() {
    return loss_is_nan.exchange(false);
}

} // namespace chaos

extern "C" {

ssize_t write(int descriptor, const void* data, size_t bytes) {
    if (!chaos::fault().kind.empty()) {
        const std::string path = chaos::watched(descriptor);
        if (path.ends_with(".safetensors")) {
            chaos::point("write");
        } else if (path.ends_with("manifest.json")) {
            chaos::point("manifest");
        }
        if (!path.empty() && chaos::disk_is_full) {
            errno = ENOSPC;
            return -1;
        }
    }
    return ::syscall(SYS_write, descriptor, data, bytes);
}

int fsync(int descriptor) {
    if (!chaos::fault().kind.empty() && chaos::watched(descriptor).ends_with(".safetensors")) {
        chaos::point("sync");
    }
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
    if (!chaos::fault().kind.empty()) {
        const std::string_view source(from);
        if (source.find("staging-") != std::string_view::npos) {
            const bool is_list = source.find("list-") != std::string_view::npos;
            chaos::point(is_list ? "gather" : "rename");
        }
    }
    return static_cast<int>(::syscall(SYS_rename, from, to));
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
    chaos::point("init");
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Finalize() {
    chaos::point("finalize");
    return PMPI_Finalize();
}

} // extern "C"

// NOLINTBEGIN: replaced allocation functions, as the standard has them. Inlined, their free() would
// look to GCC like one of what another function has allocated.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    chaos::count_allocation();
    if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    chaos::count_allocation();
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) {
        return memory;
    }
    throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/,
                                       std::align_val_t /*align*/) noexcept {
    std::free(memory);
}
// NOLINTEND
