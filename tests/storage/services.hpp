// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the storage tests need: a service that misbehaves on command, a file system of our own,
/// directories that vanish.
#pragma once

#include "support/thrown.hpp"

#include <rtrain/storage/cloud/arrow.hpp>
#include <rtrain/storage/transfer.hpp>
#include <rtrain/testing/scratch.hpp>

#include <arrow/filesystem/localfs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

namespace fs = std::filesystem;
using namespace rtrain::storage;

/// Stands for a secret: must not appear in any message or output.
inline const std::string canary_id = "CANARYID0123456789";
inline const std::string canary_key = "canary/secret+key/0123456789abcdefghij";

class Directory {
public:
    explicit Directory(const std::string& name)
        : path_(fs::temp_directory_path() /
                ("rtrain-storage-" + std::to_string(::getpid()) + "-" + name)) {
        fs::remove_all(path_);
        fs::create_directories(path_);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    [[nodiscard]] const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

/// A directory of this machine that stands for HDFS.
class Directories : public arrow::fs::SubTreeFileSystem {
public:
    enum class Failing : std::uint8_t { once, from_then_on };

    /// What moves or deletes a file fails after some steps; the second is the end of a process.
    explicit Directories(const fs::path& base, int steps = std::numeric_limits<int>::max(),
                         Failing failing = Failing::once)
        : SubTreeFileSystem(base.string(), std::make_shared<arrow::fs::LocalFileSystem>()),
          steps_(steps), failing_(failing) {}

    arrow::Status Move(const std::string& from, const std::string& to) override {
        return step() ? SubTreeFileSystem::Move(from, to) : arrow::Status::IOError("no move");
    }
    arrow::Status DeleteFile(const std::string& path) override {
        return step() ? SubTreeFileSystem::DeleteFile(path) : arrow::Status::IOError("no delete");
    }
    arrow::Result<std::shared_ptr<arrow::io::OutputStream>>
    OpenOutputStream(const std::string& path,
                     const std::shared_ptr<const arrow::KeyValueMetadata>& metadata) override {
        ARROW_RETURN_NOT_OK(CreateDir(fs::path(path).parent_path().string(), true));
        return SubTreeFileSystem::OpenOutputStream(path, metadata);
    }
    [[nodiscard]] bool has_failed() const { return has_failed_; }

private:
    bool step() {
        const bool fails = has_failed_ ? failing_ == Failing::from_then_on : steps_ == 0;
        has_failed_ = has_failed_ || fails;
        --steps_;
        return !fails;
    }
    std::atomic<int> steps_;
    Failing failing_;
    std::atomic<bool> has_failed_ = false;
};

/// A program with pipes to its standard input and from its standard output.
class Child {
public:
    Child(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment,
          bool with_errors = false) {
        for (const auto& [name, value] : environment) {
            ::setenv(name.c_str(), value.c_str(), 1);
        }
        std::array<int, 2> in{};
        std::array<int, 2> out{};
        if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
            throw std::runtime_error("pipe");
        }
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
        ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        if (with_errors) {
            ::posix_spawn_file_actions_adddup2(&actions, out[1], 2);
        }
        std::vector<char*> argv;
        for (auto& argument : arguments) {
            argv.push_back(argument.data());
        }
        argv.push_back(nullptr);
        const int result = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        ::close(out[1]);
        to_ = ::fdopen(in[1], "w");
        from_ = ::fdopen(out[0], "r");
        if (result != 0) {
            throw std::runtime_error("cannot start " + arguments[0]);
        }
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        end_input();
        wait();
        std::fclose(from_);
    }

    void send(const std::string& line) {
        std::fputs((line + "\n").c_str(), to_);
        std::fflush(to_);
    }
    /// Without the line's end; what there is when the program has ended.
    std::string receive() {
        std::string line;
        for (int c = std::getc(from_); c != EOF && c != '\n'; c = std::getc(from_)) {
            line += static_cast<char>(c);
        }
        return line;
    }
    std::string receive_all() {
        std::string text;
        for (int c = std::getc(from_); c != EOF; c = std::getc(from_)) {
            text += static_cast<char>(c);
        }
        return text;
    }
    void end_input() {
        if (to_ != nullptr) {
            std::fclose(to_);
            to_ = nullptr;
        }
    }
    void kill() const { ::kill(pid_, SIGKILL); }
    /// The exit status as of waitpid.
    int wait() {
        if (pid_ > 0) {
            ::waitpid(pid_, &status_, 0);
            pid_ = -1;
        }
        return status_;
    }

private:
    pid_t pid_ = -1;
    int status_ = 0;
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
};

/// moto's S3 or a Google Cloud Storage emulator, with an empty bucket named "bucket".
class Server {
public:
    explicit Server(const std::string& kind, const std::string& without_checks = "infinity")
        : child_({RTRAIN_TEST_PYTHON, RTRAIN_TEST_SERVER, kind},
                 {{"INITIAL_NO_AUTH_ACTION_COUNT", without_checks}}),
          kind_(kind), port_(child_.receive()) {
        if (port_.empty()) {
            throw std::runtime_error("the test server did not start");
        }
    }

    [[nodiscard]] std::string uri(const std::string& path) const {
        return kind_ == "s3"
                   ? "s3://" + path +
                         "?region=us-east-1&scheme=http&endpoint_override=" + "127.0.0.1:" + port_
                   : "gs://" + path +
                         "?anonymous=true&scheme=http&endpoint_override=" + "127.0.0.1:" + port_;
    }
    /// As JSON: R"("error_rate": 0.3)".
    void faults(const std::string& json) { ask("{\"faults\": {" + json + "}}"); }
    int count(const std::string& method, const std::string& prefix) {
        return std::stoi(ask(R"({"count": [")" + method + "\", \"" + prefix + "\"]}"));
    }
    int injected() { return std::stoi(ask(R"({"injected": true})")); }
    int open_uploads() { return std::stoi(ask(R"({"open_uploads": "bucket"})")); }

private:
    std::string ask(const std::string& command) {
        child_.send(command);
        return child_.receive();
    }
    Child child_;
    std::string kind_;
    std::string port_;
};

/// Impatient, so that tests of failures are quick.
inline TransferConfig quick() {
    TransferConfig config;
    config.attempts = 3;
    config.first_backoff_s = 0.02;
    config.max_backoff_s = 0.2;
    config.request_timeout_s = 2;
    config.deadline_s = 30;
    return config;
}

/// The smallest file system of one's own.
class Memory {
public:
    std::vector<Entry> list(const std::string& path) {
        const std::scoped_lock lock(*mutex_);
        std::map<std::string, Entry> entries;
        for (const auto& [name, text] : *files_) {
            if (name.starts_with(path + "/")) {
                const auto rest = name.substr(path.size() + 1);
                const auto slash = rest.find('/');
                const auto child = rest.substr(0, slash);
                const bool directory = slash != std::string::npos;
                entries[child] = {child, directory ? 0 : text.size(), directory};
            }
        }
        std::vector<Entry> found;
        for (const auto& [name, entry] : entries) {
            found.push_back(entry);
        }
        return found;
    }
    std::string read(const std::string& path) {
        const std::scoped_lock lock(*mutex_);
        const auto found = files_->find(path);
        if (found == files_->end()) {
            throw rtrain::StorageError("RT-S10", "no file " + path);
        }
        return found->second;
    }
    void write(const std::string& path, std::string_view text) {
        const std::scoped_lock lock(*mutex_);
        (*files_)[path] = text;
    }
    void upload(const fs::path& local, const std::string& path) { write(path, read_file(local)); }
    void download(const std::string& path, const fs::path& local) {
        replace_file(local, read(path));
    }
    void remove(const std::string& path) {
        const std::scoped_lock lock(*mutex_);
        std::erase_if(*files_, [&](const auto& file) {
            return file.first == path || file.first.starts_with(path + "/");
        });
    }
    bool exists(const std::string& path) {
        const std::scoped_lock lock(*mutex_);
        return files_->contains(path) || [&] {
            const auto next = files_->lower_bound(path + "/");
            return next != files_->end() && next->first.starts_with(path + "/");
        }();
    }

private:
    std::shared_ptr<std::map<std::string, std::string>> files_ =
        std::make_shared<std::map<std::string, std::string>>();
    std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
};

using rtrain::testing::noise;

struct Caught {
    std::string code;
    std::string text;
    bool transient = false;
    double seconds = 0;
};

/// The rtrain::Error that `action` throws, and after which time.
template <class Action>
Caught caught(Action&& action) {
    const auto start = Clock::now();
    Caught result;
    try {
        action();
    } catch (const rtrain::Error& error) {
        result = {error.code(), error.what(),
                  dynamic_cast<const rtrain::TransientStorageError*>(&error) != nullptr, 0};
    }
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return result;
}

} // namespace test
