// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a tar archive of samples. What is accepted lies in the archive, in order, and is
// found again in the part of the archive that it is said to be in.
#include "require.hpp"

#include <rtrain/format/webdataset.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

using namespace rtrain::format;

namespace {

/// The archive with the checksums that its headers should have: else hardly any change gets beyond
/// them.
std::string with_sound_sums(std::string archive) {
    for (std::size_t at = 0; at + tar::block <= archive.size(); at += tar::block) {
        if (archive.compare(at + 257, 5, "ustar") != 0) {
            continue;
        }
        archive.replace(at + 148, 8, 8, ' ');
        unsigned sum = 0;
        for (std::size_t i = 0; i < tar::block; ++i) {
            sum += static_cast<unsigned char>(archive[at + i]);
        }
        for (std::size_t digit = 0; digit < 6; ++digit) {
            archive[at + 153 - digit] = static_cast<char>('0' + (sum >> (3 * digit) & 7U));
        }
    }
    return archive;
}

void read_all(std::string_view archive) {
    const std::size_t size = archive.size();
    const auto read = [&](std::uint64_t offset, std::size_t length) {
        return offset < archive.size() ? archive.substr(offset, length) : std::string_view();
    };
    std::uint64_t end = 0;
    try {
        SampleReader samples{TarReader(size, read)};
        while (const auto sample = samples.next()) {
            require(sample->begin >= end && sample->end <= size, "samples follow each other");
            require(!sample->files.empty() && !sample->key.empty(), "a sample has files and a key");
            for (const SampleFile& file : sample->files) {
                require(file.data >= sample->begin && file.data + file.size <= sample->end,
                        "files lie in their sample");
            }
            end = sample->end;
            SampleReader part{
                TarReader(sample->end, read, TarReader::End::anywhere, sample->begin)};
            const auto again = part.next();
            require(again && again->key == sample->key &&
                        again->files.size() == sample->files.size() && again->end == sample->end,
                    "a sample is found again in its part");
            require(!part.next(), "and nothing else");
        }
    } catch (const TarError&) { // no archive, or a damaged one
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view archive(reinterpret_cast<const char*>(data), size);
    read_all(archive);
    read_all(with_sound_sums(std::string(archive)));
    return 0;
}
