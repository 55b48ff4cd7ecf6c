// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the files that track::Wandb and track::Comet leave, by code of its own. wandb_test.py and
/// comet_test.py do it with what W&B and Comet give to their users.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/format/protobuf.hpp>
#include <rtrain/format/zip_directory.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test {

inline std::uint32_t crc_of(std::string_view bytes) {
    return static_cast<std::uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

inline std::uint64_t little(std::string_view bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i > 0; --i) {
        value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
    }
    return value;
}

/// The only file of that sort below `directory`.
inline std::filesystem::path only_file(const std::filesystem::path& directory,
                                       const std::string& extension) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        if (entry.path().extension() == extension) {
            found.push_back(entry.path());
        }
    }
    REQUIRE(found.size() == 1);
    return found.front();
}

/// The records of a W&B file, each of which must be whole.
inline std::vector<std::string> wandb_records(std::string_view file) {
    constexpr std::size_t block = 32768;
    REQUIRE(file.substr(0, 7) == std::string_view(":W&B\xe1\xbe\0", 7));
    std::vector<std::string> records;
    bool is_open = false;
    for (std::size_t at = 7; at < file.size();) {
        const std::size_t room = block - at % block;
        if (room < 7) {
            REQUIRE(file.substr(at, room) == std::string(room, '\0'));
            at += room;
            continue;
        }
        REQUIRE(file.size() - at >= 7);
        const std::uint64_t size = little(file.substr(at + 4, 2));
        const int type = file[at + 6];
        REQUIRE(7 + size <= room);
        REQUIRE(file.size() - at >= 7 + size);
        REQUIRE(little(file.substr(at, 4)) == crc_of(file.substr(at + 6, 1 + size)));
        const bool begins = type == 1 || type == 2;
        REQUIRE((type >= 1 && type <= 4));
        REQUIRE(begins != is_open);
        if (begins) {
            records.emplace_back();
        }
        records.back() += file.substr(at + 7, size);
        is_open = type == 2 || type == 3;
        at += 7 + size;
    }
    REQUIRE(!is_open);
    return records;
}

/// A W&B run as its file has it; values are JSON texts.
struct WandbRun {
    using Items = std::map<std::string, std::string>;

    std::map<unsigned, std::string> run; ///< fields of texts; the last of each
    std::vector<std::string> tags;
    Items config;
    std::vector<Items> history;
    std::vector<std::uint64_t> steps; ///< of the history
    Items summary;
    int exits = 0;
    std::uint64_t exit_code = 0;
};

/// A ConfigItem, HistoryItem or SummaryItem.
inline std::pair<std::string, std::string> wandb_item(std::string_view bytes) {
    std::pair<std::string, std::string> item;
    rtrain::protobuf::Fields fields(bytes);
    while (const auto field = fields.next()) {
        (field->number == 16 ? item.second : item.first) = field->bytes;
    }
    return item;
}

inline void read_wandb_record(WandbRun& run, unsigned kind, std::string_view bytes) {
    WandbRun::Items history;
    rtrain::protobuf::Fields fields(bytes);
    while (const auto field = fields.next()) {
        if (kind == 17 && field->number == 4) {
            rtrain::protobuf::Fields items(field->bytes);
            while (const auto one = items.next()) {
                run.config.insert(wandb_item(one->bytes));
            }
        } else if (kind == 17 && field->number == 10) {
            run.tags.emplace_back(field->bytes);
        } else if (kind == 17) {
            run.run[field->number] = field->bytes;
        } else if (kind == 2 && field->number == 1) {
            CHECK(history.insert(wandb_item(field->bytes)).second); // no name twice
        } else if (kind == 2) {
            rtrain::protobuf::Fields step(field->bytes);
            run.steps.push_back(step.next()->value);
        } else if (kind == 3) {
            const auto item = wandb_item(field->bytes);
            run.summary[item.first] = item.second;
        } else if (kind == 18 && field->number == 1) {
            run.exit_code = field->value;
        }
    }
    if (kind == 2) {
        run.history.push_back(std::move(history));
    }
    run.exits += kind == 18 ? 1 : 0;
}

inline WandbRun read_wandb(const std::filesystem::path& directory) {
    WandbRun run;
    std::uint64_t number = 0;
    for (const std::string& record :
         wandb_records(rtrain::storage::read_file(only_file(directory, ".wandb")))) {
        CHECK(run.exits == 0); // nothing follows
        rtrain::protobuf::Fields fields(record);
        while (const auto field = fields.next()) {
            if (field->number == 1) {
                CHECK(field->value == ++number);
            } else {
                read_wandb_record(run, field->number, field->bytes);
            }
        }
    }
    return run;
}

/// A Comet archive: its description, and its messages.
struct CometArchive {
    rtrain::Config experiment;
    std::vector<rtrain::Config> messages;

    /// Payloads of a type.
    [[nodiscard]] std::vector<rtrain::Config> payloads(std::string_view type) const {
        std::vector<rtrain::Config> found;
        for (const rtrain::Config& message : messages) {
            if (message.at("type").as_string() == type) {
                found.push_back(message.at("payload").as_object());
            }
        }
        return found;
    }
};

inline CometArchive read_comet(const std::filesystem::path& directory) {
    const std::string file = rtrain::storage::read_file(only_file(directory, ".zip"));
    std::map<std::string, std::string> texts;
    for (const auto& [name, record] : rtrain::checkpoint::parse_zip_directory(file)) {
        CHECK(record.stored);
        texts[name] = file.substr(record.offset, record.size);
        CHECK(crc_of(texts[name]) == record.crc);
    }
    REQUIRE(texts.size() == 2);
    CometArchive archive{.experiment = rtrain::json::parse(texts.at("experiment.json")).as_object(),
                         .messages = {}};
    std::istringstream lines(texts.at("messages.json"));
    for (std::string line; std::getline(lines, line);) {
        archive.messages.push_back(rtrain::json::parse(line).as_object());
    }
    return archive;
}

} // namespace test
