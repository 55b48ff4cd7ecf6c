// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect NOT_COPYABLE: Filesystem not met: the type must be copyable [RT-Y1]
// expect NO_LIST: Filesystem not met: missing member `std::vector<rtrain::storage::Entry> list(const std::string& path)` [RT-Y2]
// expect NO_READ: Filesystem not met: missing member `std::string read(const std::string& path)` [RT-Y3]
// expect NO_WRITE: Filesystem not met: missing member `void write(const std::string& path, std::string_view text)` [RT-Y4]
// expect NO_UPLOAD: Filesystem not met: missing member `void upload(const std::filesystem::path& local, const std::string& path)` [RT-Y5]
// expect NO_DOWNLOAD: Filesystem not met: missing member `void download(const std::string& path, const std::filesystem::path& local)` [RT-Y6]
// expect NO_REMOVE: Filesystem not met: missing member `void remove(const std::string& path)` [RT-Y7]
// expect NO_EXISTS: Filesystem not met: missing member `bool exists(const std::string& path)` [RT-Y8]
// clang-format on
#include <rtrain/storage/filesystem.hpp>

struct MyFilesystem {
#ifdef NOT_COPYABLE
    MyFilesystem(MyFilesystem&&) = default;
#endif
#ifndef NO_LIST
    std::vector<rtrain::storage::Entry> list(const std::string&);
#endif
#ifndef NO_READ
    std::string read(const std::string&);
#endif
#ifndef NO_WRITE
    void write(const std::string&, std::string_view);
#endif
#ifndef NO_UPLOAD
    void upload(const std::filesystem::path&, const std::string&);
#endif
#ifndef NO_DOWNLOAD
    void download(const std::string&, const std::filesystem::path&);
#endif
#ifndef NO_REMOVE
    void remove(const std::string&);
#endif
#ifndef NO_EXISTS
    bool exists(const std::string&);
#endif
};

rtrain::storage::AnyFilesystem any(MyFilesystem&& files) {
    return static_cast<MyFilesystem&&>(files);
}
