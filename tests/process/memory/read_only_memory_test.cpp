// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>
#include <rtrain/process/stdio/output_tee.hpp>

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using rtrain::process::ReadOnlyMemory;

namespace {

/// What a child that runs `action` writes to standard error, and how it ends.
template <class Action>
std::pair<std::string, int> in_child(Action&& action) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(pipe[1], STDERR_FILENO);
        action();
        ::_exit(0);
    }
    ::close(pipe[1]);
    std::string text;
    std::array<char, 256> part{};
    for (ssize_t got = 0; (got = ::read(pipe[0], part.data(), part.size())) > 0;) {
        text.append(part.data(), static_cast<std::size_t>(got));
    }
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return {text, status};
}

} // namespace

TEST_CASE("ReadOnlyMemory.names_what_was_written" * doctest::timeout(60)) {
    auto memory = rtrain::comm::SharedMemory::create(8192);
    std::byte* const read = memory.map_read_only();
    CHECK(!ReadOnlyMemory::any());
    {
        const ReadOnlyMemory listed(read, memory.data(), memory.size(),
                                    {{0, 4096, "the first\n"}, {4096, 8192, "the second\n"}});
        CHECK(ReadOnlyMemory::any());
        CHECK(ReadOnlyMemory::writable(read + 5000) == memory.data() + 5000);
        CHECK(ReadOnlyMemory::writable(memory.data()) == nullptr);
        CHECK(ReadOnlyMemory::writable(&memory) == nullptr);
        memory.data()[5000] = std::byte{7};
        CHECK(read[5000] == std::byte{7});

        const auto [text, status] = in_child([&] {
            std::signal(SIGSEGV, SIG_DFL); // not the test's
            const ReadOnlyMemory again(read, memory.data(), memory.size(), {});
            const_cast<volatile std::byte&>(read[5000]) = std::byte{8};
        });
        CHECK(text == "the second\n");
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGSEGV);

        const auto [others, ended] = in_child([&] { // a fault elsewhere is none of ours
            std::signal(SIGSEGV, SIG_DFL);
            const ReadOnlyMemory again(read, memory.data(), memory.size(), {});
            (void)::raise(SIGSEGV);
            *static_cast<volatile int*>(nullptr) = 1;
        });
        CHECK(others.empty());
        CHECK(WIFSIGNALED(ended));
    }
    CHECK(ReadOnlyMemory::writable(read) == nullptr);

    const auto [said, crashed] = in_child([&] { // a run that keeps output, and a second one
        std::signal(SIGSEGV, SIG_DFL);
        ::alarm(20); // else two handlers may call each other for ever
        const auto unheard = [](rtrain::OutputStream, std::string_view) {};
        auto tee = std::make_unique<rtrain::process::OutputTee>(unheard);
        const ReadOnlyMemory again(read, memory.data(), memory.size(), {});
        tee.reset();
        tee = std::make_unique<rtrain::process::OutputTee>(unheard);
        *static_cast<volatile int*>(nullptr) = 1;
    });
    CHECK(said.empty());
    CHECK(WIFSIGNALED(crashed));
    CHECK(WTERMSIG(crashed) == SIGSEGV);
    ::munmap(read, memory.size());
}
