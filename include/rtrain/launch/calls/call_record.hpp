// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallRecord: the answered calls of a run, in its directory. The same command gets their answers
/// from it, and ranks that start over repeat those that their checkpoint lacks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/storage/location.hpp>

#include <boost/json/serialize.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::launch {

struct AnsweredCall {
    Call call;
    CallReply answer;
};

class CallRecord {
public:
    static constexpr const char* file_name = "calls.jsonl";

    /// `run`: the directory of the run.
    explicit CallRecord(storage::Location run) : run_(std::move(run)) {}

    /// Reads the file; a record whose end is missing was never answered. Throws StorageError, and
    /// LaunchError [RT-F37] if it is damaged.
    void read() {
        calls_.clear();
        text_.clear();
        if (!run_.filesystem.exists(path())) {
            return;
        }
        const std::string text = run_.filesystem.read(path());
        for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
             begin = end + 1) {
            calls_.push_back(parse(std::string_view(text).substr(begin, end - begin)));
            text_ = text.substr(0, end + 1);
        }
    }

    /// The call with that number; null if it is not recorded.
    [[nodiscard]] const AnsweredCall* find(std::int64_t number) const {
        const auto index = static_cast<std::size_t>(number - 1);
        return number >= 1 && index < calls_.size() ? &calls_[index] : nullptr;
    }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(calls_.size()); }

    /// Adds the next call, durably. Throws StorageError.
    void append(AnsweredCall answered) {
        const std::string line = json::serialize(to_json(answered)) + '\n';
        if (run_.filesystem.is_local()) {
            if (std::filesystem::exists(path()) &&
                std::filesystem::file_size(path()) != text_.size()) {
                storage::cut_off(path(), text_.size()); // the rest of a killed process's last line
            }
            storage::GrowingFile file(path());
            file.append(line);
            file.sync();
        } else {
            run_.filesystem.write(path(), text_ + line);
        }
        text_ += line;
        calls_.push_back(std::move(answered));
    }

private:
    [[nodiscard]] static boost::json::object to_json(const AnsweredCall& answered) {
        return {{"name", answered.call.name},
                {"arguments", answered.call.arguments},
                {"answer", launch::to_json(answered.answer)}};
    }
    [[nodiscard]] static AnsweredCall answered_from(const boost::json::object& object) {
        AnsweredCall answered{.call = {.name = std::string(object.at("name").as_string()),
                                       .arguments = object.at("arguments").as_object()},
                              .answer = answer_from(object.at("answer").as_object())};
        answered.call.number = answered.answer.number;
        return answered;
    }

    [[nodiscard]] AnsweredCall parse(std::string_view line) const {
        try {
            AnsweredCall answered = answered_from(json::parse(line).as_object());
            if (answered.call.number == size() + 1) {
                return answered;
            }
        } catch (const std::exception&) { // reported below
        }
        throw LaunchError("RT-F37",
                          detail::concat(run_.filesystem.uri(path()), " is damaged at call ",
                                         size() + 1, "; start the run over under a new name"));
    }

    [[nodiscard]] std::string path() const { return run_.path + '/' + file_name; }

    storage::Location run_;
    std::vector<AnsweredCall> calls_; ///< by number
    std::string text_;                ///< of the file
};

} // namespace rtrain::launch
