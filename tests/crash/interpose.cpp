// SPDX-License-Identifier: Apache-2.0
// The libc functions that change files, defined in the test's executable, so that calls from
// rtrain's headers, from libstdc++ and from libtorch all end here. Each makes the system call, and,
// for files under the watched directory, records it or makes it fail. What is not modelled (shared
// writable mappings, links) ends the program; that no call goes another way is checked with strace
// by trace_is_complete.py.
#include "faults.hpp"
#include "trace.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace crash {
namespace {

using Kind = Operation::Kind;

struct Watch {
    std::mutex mutex; ///< held from before a call until it is recorded
    std::string root; ///< empty: nothing is watched
    bool recording = false;
    bool failing = false;

    Trace trace;
    Tree names; ///< what is where, as the program sees it; contents are left out
    Object last = 0;
    std::map<Object, std::string> changed; ///< the last change in a directory

    Fault fault;
    FaultReport report;
    std::set<std::pair<dev_t, ino_t>> failed_syncs;
};

Watch& watch() {
    static auto* const instance = new Watch; // calls come before and after all static objects
    return *instance;
}

thread_local char last_change[sizeof FaultReport::before] = {}; ///< a thread syncs its own

bool is_on() {
    return watch().recording || watch().failing;
}

[[noreturn]] void refuse(const std::string& what) {
    std::fprintf(stderr, "crash tests do not model %s\n", what.c_str());
    std::abort();
}

std::string text_of_link(const std::string& link) {
    char buffer[4096];
    const long length = ::syscall(SYS_readlink, link.c_str(), buffer, sizeof buffer);
    return length > 0 ? std::string(buffer, static_cast<std::size_t>(length)) : "";
}

std::string path_of(int descriptor) {
    return text_of_link("/proc/self/fd/" + std::to_string(descriptor));
}

std::string path_of(int directory, const char* name) {
    std::filesystem::path path(name);
    if (path.is_relative()) {
        path = (directory == AT_FDCWD ? text_of_link("/proc/self/cwd") : path_of(directory)) / path;
    }
    std::string text = path.lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') {
        text.pop_back();
    }
    return text;
}

/// The path below the watched directory; empty when it is elsewhere.
std::optional<std::string> watched(const std::string& path) {
    const std::string& root = watch().root;
    if (path == root) {
        return "";
    }
    if (path.starts_with(root + "/") && !path.ends_with(" (deleted)")) {
        return path.substr(root.size() + 1);
    }
    return std::nullopt;
}

// --- Names ------------------------------------------------------------------------------------

std::optional<Object> find(const std::string& path) {
    Object object = 0;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const auto& entries = watch().names[object].entries;
        const auto entry = entries.find(path.substr(begin, end - begin));
        if (entry == entries.end()) {
            return std::nullopt;
        }
        object = entry->second;
        begin = end + 1;
    }
    return object;
}

/// The directory that a path's last name is in, and that name.
std::pair<Object, std::string> place(const std::string& path) {
    const auto slash = path.rfind('/');
    const auto parent = find(slash == std::string::npos ? "" : path.substr(0, slash));
    return {parent.value(), slash == std::string::npos ? path : path.substr(slash + 1)};
}

void changed(Object directory, const std::string& what) {
    watch().changed[directory] = without_numbers(what);
}

// --- Records; the caller holds the mutex ------------------------------------------------------

void add(Operation operation) {
    watch().trace.operations.push_back(std::move(operation));
}

void record_create(const std::string& path, bool is_directory) {
    const auto [directory, name] = place(path);
    const Object object = ++watch().last;
    watch().names[object].is_directory = is_directory;
    watch().names[directory].entries[name] = object;
    changed(directory, "create " + name);
    add({.kind = is_directory ? Kind::create_directory : Kind::create_file,
         .object = object,
         .directory = directory,
         .name = name,
         .text = (is_directory ? "mkdir " : "create ") + path});
}

void record_write(const std::string& path, std::uint64_t offset, std::string data) {
    const std::string text = "write " + std::to_string(data.size()) + " to " + path;
    add({.kind = Kind::write,
         .object = find(path).value(),
         .offset = offset,
         .data = std::move(data),
         .text = text});
}

void record_truncate(const std::string& path, std::uint64_t size) {
    add({.kind = Kind::truncate,
         .object = find(path).value(),
         .offset = size,
         .text = "truncate " + path});
}

void record_sync(const std::string& path) {
    const Object object = find(path).value();
    std::string site = without_numbers(path.empty() ? "." : path);
    if (watch().names[object].is_directory) {
        site += "/ after " + watch().changed[object];
    }
    add({.kind = Kind::sync, .object = object, .text = "sync " + site});
}

void record_rename(const std::string& from, const std::string& to) {
    const auto [directory, name] = place(from);
    const auto [to_directory, to_name] = place(to);
    const Object object = find(from).value();
    watch().names[directory].entries.erase(name);
    watch().names[to_directory].entries[to_name] = object;
    for (const Object changed_one : {directory, to_directory}) {
        changed(changed_one, "rename " + name + " to " + to_name);
    }
    add({.kind = Kind::rename,
         .object = object,
         .directory = directory,
         .name = name,
         .to_directory = to_directory,
         .to_name = to_name,
         .text = "rename " + from + " to " + to});
}

void record_remove(const std::string& path) {
    const auto [directory, name] = place(path);
    const Object object = find(path).value();
    watch().names[directory].entries.erase(name);
    changed(directory, "remove " + name);
    add({.kind = Kind::remove,
         .object = object,
         .directory = directory,
         .name = name,
         .text = "remove " + path});
}

// --- Faults -----------------------------------------------------------------------------------

template <std::size_t size>
void keep(char (&place)[size], const std::string& text) {
    std::snprintf(place, size, "%s", text.c_str());
}

enum class Verdict : unsigned char { go_on, fail, halve };

/// Whether the call that is about to be made fails; errno is then set. The caller holds the mutex.
Verdict judge(const char* call, const std::string& path, bool can_be_halved) {
    Watch& w = watch();
    if (!w.failing) {
        return Verdict::go_on;
    }
    const long number = w.report.calls++;
    const std::string text = std::string(call) + " " + path;
    const std::string before = last_change;
    if (const std::string name(call); name != "open" && name != "read" && name != "close") {
        keep(last_change, text);
    }
    constexpr long some = 5; // nobody is interrupted for ever
    const long count = !w.fault.persistent ? 1 : (w.fault.error == EINTR ? some : LONG_MAX);
    if (number < w.fault.call || number - w.fault.call >= count) {
        return Verdict::go_on;
    }
    if (w.fault.error == 0 && !can_be_halved) {
        return Verdict::go_on;
    }
    if (!w.report.happened) {
        keep(w.report.at, text);
        keep(w.report.before, before);
    }
    w.report.happened = true;
    errno = w.fault.error;
    return w.fault.error == 0 ? Verdict::halve : Verdict::fail;
}

// --- Calls ------------------------------------------------------------------------------------

/// Opens through `call`, a function of no arguments that returns a descriptor or -1.
template <class Call>
int opened(int directory, const char* name, int flags, Call&& call) {
    if (!is_on()) {
        return call();
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(path_of(directory, name));
    if (!path) {
        return call();
    }
    if (judge("open", *path, false) == Verdict::fail) {
        return -1;
    }
    const int descriptor = call();
    if (watch().recording && descriptor >= 0) {
        if ((flags & O_TMPFILE) == O_TMPFILE) {
            refuse("O_TMPFILE");
        }
        const bool existed = find(*path).has_value();
        if (!existed) {
            record_create(*path, false);
        } else if ((flags & O_TRUNC) != 0) {
            record_truncate(*path, 0);
        }
    }
    return descriptor;
}

constexpr off_t at_position = -1; ///< a write goes where the descriptor's position is

/// Writes through `call(bytes)`, which returns how many it has written.
template <class Call>
ssize_t written(int descriptor, std::size_t bytes, off_t offset, Call&& call) {
    if (!is_on()) {
        return call(bytes);
    }
    const std::lock_guard lock(watch().mutex);
    const std::string file = path_of(descriptor);
    const auto path = watched(file);
    if (!path) {
        return call(bytes);
    }
    const Verdict verdict = judge("write", *path, bytes > 1);
    if (verdict == Verdict::fail) {
        return -1;
    }
    const ssize_t done = call(verdict == Verdict::halve ? bytes / 2 : bytes);
    if (watch().recording && done > 0) {
        const off_t end = offset == at_position ? ::lseek(descriptor, 0, SEEK_CUR) : offset + done;
        std::string data(static_cast<std::size_t>(done), '\0');
        const long again = ::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_RDONLY | O_CLOEXEC);
        if (::syscall(SYS_pread64, again, data.data(), data.size(), end - done) != done) {
            refuse("a file that cannot be read back");
        }
        ::syscall(SYS_close, again);
        record_write(*path, static_cast<std::uint64_t>(end - done), std::move(data));
        const int flags = ::fcntl(descriptor, F_GETFL);
        if ((flags & O_DSYNC) != 0) {
            record_sync(*path);
        }
    }
    return done;
}

template <class Call>
ssize_t read_through(int descriptor, std::size_t bytes, Call&& call) {
    if (!watch().failing) {
        return call(bytes);
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(path_of(descriptor));
    const Verdict verdict = path ? judge("read", *path, bytes > 1) : Verdict::go_on;
    if (verdict == Verdict::fail) {
        return -1;
    }
    return call(verdict == Verdict::halve ? bytes / 2 : bytes);
}

int synced(int descriptor, long number) {
    if (!is_on()) {
        return static_cast<int>(::syscall(number, descriptor));
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(path_of(descriptor));
    if (!path) {
        return static_cast<int>(::syscall(number, descriptor));
    }
    struct stat status {};
    ::fstat(descriptor, &status);
    const std::pair<dev_t, ino_t> file(status.st_dev, status.st_ino);
    if (judge("fsync", *path, false) == Verdict::fail) {
        if (S_ISREG(status.st_mode) && errno != EINTR) { // which has given up nothing
            watch().failed_syncs.insert(file);
        }
        return -1;
    }
    if (watch().failed_syncs.contains(file)) {
        keep(watch().report.sync_retried, *path);
    }
    const int result = static_cast<int>(::syscall(number, descriptor));
    if (watch().recording && result == 0) {
        record_sync(*path);
    }
    return result;
}

int truncated(const std::string& file, off_t size, long number, auto target) {
    if (!is_on()) {
        return static_cast<int>(::syscall(number, target, size));
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(file);
    if (path && judge("truncate", *path, false) == Verdict::fail) {
        return -1;
    }
    const int result = static_cast<int>(::syscall(number, target, size));
    if (path && watch().recording && result == 0) {
        record_truncate(*path, static_cast<std::uint64_t>(size));
    }
    return result;
}

int renamed(int from_directory, const char* from, int to_directory, const char* to,
            unsigned flags) {
    const auto call = [&] {
        return static_cast<int>(
            ::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
    };
    if (!is_on()) {
        return call();
    }
    const std::lock_guard lock(watch().mutex);
    const auto source = watched(path_of(from_directory, from));
    const auto target = watched(path_of(to_directory, to));
    if (!source && !target) {
        return call();
    }
    if (!source || !target || (flags & RENAME_EXCHANGE) != 0) {
        refuse("a rename into or out of the watched directory, or an exchange");
    }
    if (judge("rename", *source, false) == Verdict::fail) {
        return -1;
    }
    const int result = call();
    if (watch().recording && result == 0) {
        record_rename(*source, *target);
    }
    return result;
}

int removed(int directory, const char* name, int flags) {
    const auto call = [&] {
        return static_cast<int>(::syscall(SYS_unlinkat, directory, name, flags));
    };
    if (!is_on()) {
        return call();
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(path_of(directory, name));
    if (path && judge("remove", *path, false) == Verdict::fail) {
        return -1;
    }
    struct stat status {};
    const bool is_known = path && ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    const int result = call();
    if (is_known && result == 0 && status.st_nlink == 1) { // the next file may get its number
        watch().failed_syncs.erase({status.st_dev, status.st_ino});
    }
    if (path && watch().recording && result == 0) {
        record_remove(*path);
    }
    return result;
}

int made(int directory, const char* name, mode_t mode) {
    const auto call = [&] {
        return static_cast<int>(::syscall(SYS_mkdirat, directory, name, mode));
    };
    if (!is_on()) {
        return call();
    }
    const std::lock_guard lock(watch().mutex);
    const auto path = watched(path_of(directory, name));
    if (path && judge("mkdir", *path, false) == Verdict::fail) {
        return -1;
    }
    const int result = call();
    if (path && watch().recording && result == 0) {
        record_create(*path, true);
    }
    return result;
}

void refuse_watched(const char* what, int directory, const char* name) {
    if (is_on() && watched(path_of(directory, name))) {
        refuse(what);
    }
}

std::FILE* opened_stream(const char* name, const char* mode) {
    static const auto real =
        reinterpret_cast<std::FILE* (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "fopen64"));
    std::FILE* stream = nullptr;
    const int flags = mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
                                     : (mode[0] == 'a' ? O_WRONLY | O_CREAT : O_RDONLY);
    opened(AT_FDCWD, name, flags, [&] {
        stream = real(name, mode);
        return stream != nullptr ? ::fileno(stream) : -1;
    });
    return stream;
}

} // namespace

// --- What tests call --------------------------------------------------------------------------

Tree read_tree(const std::filesystem::path& directory) {
    Tree tree;
    Object last = 0;
    const auto visit = [&](const auto& self, const std::filesystem::path& path,
                           Object object) -> void {
        tree[object].is_directory = std::filesystem::is_directory(path);
        if (!tree[object].is_directory) {
            std::ifstream file(path, std::ios::binary);
            tree[object].content.assign(std::istreambuf_iterator<char>(file), {});
            return;
        }
        for (const auto& item : std::filesystem::directory_iterator(path)) {
            const Object child = ++last;
            tree[object].entries[item.path().filename().string()] = child;
            self(self, item.path(), child);
        }
    };
    visit(visit, directory, 0);
    return tree;
}

void start_recording(const std::filesystem::path& directory) {
    Watch& w = watch();
    w.root = std::filesystem::canonical(directory).string();
    w.trace = {.before = read_tree(directory), .operations = {}};
    w.names = w.trace.before;
    w.last = w.names.rbegin()->first;
    w.changed.clear();
    (void)::access((w.root + "/recording-begins").c_str(), F_OK); // for trace_is_complete.py
    w.recording = true;
}

void mark(const Mark& mark) {
    const std::lock_guard lock(watch().mutex);
    if (watch().recording) {
        add({.kind = Kind::mark, .mark = mark});
    }
}

Trace stop_recording() {
    watch().recording = false;
    (void)::access((watch().root + "/recording-ends").c_str(), F_OK);
    return std::exchange(watch().trace, {});
}

void start_failing(const std::filesystem::path& directory, const Fault& fault) {
    Watch& w = watch();
    w.root = std::filesystem::canonical(directory).string();
    w.fault = fault;
    w.report = {};
    keep(last_change, "");
    w.failed_syncs.clear();
    w.failing = true;
}

FaultReport stop_failing() {
    watch().failing = false;
    return watch().report;
}

} // namespace crash

// --- libc -------------------------------------------------------------------------------------

using namespace crash;

extern "C" {

int open(const char* name, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return opened(AT_FDCWD, name, flags, [&] {
        return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name, flags, mode));
    });
}
int openat(int directory, const char* name, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return opened(directory, name, flags, [&] {
        return static_cast<int>(::syscall(SYS_openat, directory, name, flags, mode));
    });
}
int creat(const char* name, mode_t mode) {
    return ::open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
int creat64(const char*, mode_t) __attribute__((alias("creat")));

std::FILE* fopen(const char* name, const char* mode) {
    return opened_stream(name, mode);
}
std::FILE* fopen64(const char* name, const char* mode) {
    return opened_stream(name, mode);
}

ssize_t write(int descriptor, const void* data, std::size_t bytes) {
    return written(descriptor, bytes, at_position,
                   [&](std::size_t n) { return ::syscall(SYS_write, descriptor, data, n); });
}
ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) {
    return written(descriptor, bytes, offset, [&](std::size_t n) {
        return ::syscall(SYS_pwrite64, descriptor, data, n, offset);
    });
}
ssize_t pwrite64(int, const void*, std::size_t, off64_t) __attribute__((alias("pwrite")));
ssize_t writev(int descriptor, const iovec* parts, int count) {
    std::size_t bytes = 0;
    for (int i = 0; i < count; ++i) {
        bytes += parts[i].iov_len;
    }
    return written(descriptor, bytes, at_position, [&](std::size_t n) {
        return n < bytes ? ::syscall(SYS_write, descriptor, parts[0].iov_base,
                                     std::min(n, parts[0].iov_len))
                         : ::syscall(SYS_writev, descriptor, parts, count);
    });
}
ssize_t sendfile(int to, int from, off_t* offset, std::size_t bytes) noexcept {
    return written(to, bytes, at_position,
                   [&](std::size_t n) { return ::syscall(SYS_sendfile, to, from, offset, n); });
}
ssize_t sendfile64(int, int, off64_t*, std::size_t) noexcept __attribute__((alias("sendfile")));
ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset,
                        std::size_t bytes, unsigned flags) {
    const off_t offset = to_offset != nullptr ? *to_offset : at_position;
    return written(to, bytes, offset, [&](std::size_t n) {
        return ::syscall(SYS_copy_file_range, from, from_offset, to, to_offset, n, flags);
    });
}

ssize_t read(int descriptor, void* data, std::size_t bytes) {
    return read_through(descriptor, bytes,
                        [&](std::size_t n) { return ::syscall(SYS_read, descriptor, data, n); });
}
ssize_t pread(int descriptor, void* data, std::size_t bytes, off_t offset) {
    return read_through(descriptor, bytes, [&](std::size_t n) {
        return ::syscall(SYS_pread64, descriptor, data, n, offset);
    });
}
ssize_t pread64(int, void*, std::size_t, off64_t) __attribute__((alias("pread")));

int fsync(int descriptor) {
    return synced(descriptor, SYS_fsync);
}
int fdatasync(int descriptor) {
    return synced(descriptor, SYS_fdatasync);
}

int ftruncate(int descriptor, off_t size) noexcept {
    return truncated(is_on() ? path_of(descriptor) : "", size, SYS_ftruncate, descriptor);
}
int ftruncate64(int, off64_t) noexcept __attribute__((alias("ftruncate")));
int truncate(const char* name, off_t size) noexcept {
    return truncated(is_on() ? path_of(AT_FDCWD, name) : "", size, SYS_truncate, name);
}
int truncate64(const char*, off64_t) noexcept __attribute__((alias("truncate")));
int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    if (is_on() && watched(path_of(descriptor))) {
        refuse("fallocate");
    }
    return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, size));
}
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
int posix_fallocate(int descriptor, off_t offset, off_t size) {
    return ::fallocate(descriptor, 0, offset, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int, off64_t, off64_t) __attribute__((alias("posix_fallocate")));

int rename(const char* from, const char* to) noexcept {
    return renamed(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
    return renamed(from_directory, from, to_directory, to, 0);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
    return renamed(from_directory, from, to_directory, to, flags);
}
int unlink(const char* name) noexcept {
    return removed(AT_FDCWD, name, 0);
}
int rmdir(const char* name) noexcept {
    return removed(AT_FDCWD, name, AT_REMOVEDIR);
}
int unlinkat(int directory, const char* name, int flags) noexcept {
    return removed(directory, name, flags);
}
int remove(const char* name) noexcept {
    struct stat status {};
    const bool is_directory = ::lstat(name, &status) == 0 && S_ISDIR(status.st_mode);
    return removed(AT_FDCWD, name, is_directory ? AT_REMOVEDIR : 0);
}
int mkdir(const char* name, mode_t mode) noexcept {
    return made(AT_FDCWD, name, mode);
}
int mkdirat(int directory, const char* name, mode_t mode) noexcept {
    return made(directory, name, mode);
}

int close(int descriptor) {
    bool fails = false;
    if (watch().failing) {
        const std::lock_guard lock(watch().mutex);
        const auto path = watched(path_of(descriptor));
        fails = path && judge("close", *path, false) == Verdict::fail;
    }
    const int error = errno;
    const int result = static_cast<int>(::syscall(SYS_close, descriptor));
    if (fails) {
        errno = error;
        return -1; // the descriptor is gone all the same, as Linux does it
    }
    return result;
}

int link(const char* from, const char* to) noexcept {
    refuse_watched("link", AT_FDCWD, to);
    return static_cast<int>(::syscall(SYS_link, from, to));
}
int linkat(int from_directory, const char* from, int to_directory, const char* to,
           int flags) noexcept {
    refuse_watched("linkat", to_directory, to);
    return static_cast<int>(::syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
}
int symlink(const char* from, const char* to) noexcept {
    refuse_watched("symlink", AT_FDCWD, to);
    return static_cast<int>(::syscall(SYS_symlink, from, to));
}
int symlinkat(const char* from, int directory, const char* to) noexcept {
    refuse_watched("symlinkat", directory, to);
    return static_cast<int>(::syscall(SYS_symlinkat, from, directory, to));
}
int syncfs(int descriptor) noexcept {
    if (is_on() && watched(path_of(descriptor))) {
        refuse("syncfs");
    }
    return static_cast<int>(::syscall(SYS_syncfs, descriptor));
}
void* mmap(void* at, std::size_t bytes, int protection, int flags, int descriptor,
           off_t offset) noexcept {
    const bool writes = (flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0;
    if (is_on() && writes && descriptor >= 0 && watched(path_of(descriptor))) {
        refuse("a shared writable mapping");
    }
    return reinterpret_cast<void*>(
        ::syscall(SYS_mmap, at, bytes, protection, flags, descriptor, offset));
}
void* mmap64(void*, std::size_t, int, int, int, off64_t) noexcept __attribute__((alias("mmap")));

} // extern "C"
