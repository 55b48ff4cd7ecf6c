// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every exception that rtrain throws. Each has a stable code, `RT-<letter><number>`, with a
/// heading in docs/errors.md; subclasses differ in what the caller can do.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/base/strict_stream.hpp>
#include <rtrain/base/visible_text.hpp>

#include <initializer_list>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain {

/// Base of all rtrain exceptions. `what()` describes what was wrong, what was expected and what to
/// do, and ends with the code. Control characters in it are escaped, because names come from files.
class Error : public std::runtime_error {
public:
    Error(std::string code, const std::string& message)
        : std::runtime_error(detail::visible(message) + " [" + code + "]"), code_(std::move(code)),
          message_(detail::visible(message)) {}

    /// Stable identifier, for example "RT-D4".
    [[nodiscard]] const std::string& code() const noexcept { return code_; }
    /// `what()` without the code.
    [[nodiscard]] const std::string& message() const noexcept { return message_; }

private:
    std::string code_;
    std::string message_;
};

/// Options that contradict each other or the way the program was launched.
class ConfigError : public Error {
    using Error::Error;
};

/// A data set, column or data file that is missing, damaged or misused.
class DataError : public Error {
    using Error::Error;
};

/// A model that cannot be trained on several ranks without changes.
class ModelError : public Error {
    using Error::Error;
};

/// A checkpoint that is damaged, not rtrain's, or does not match the state it is loaded into.
class CheckpointError : public Error {
    using Error::Error;
};

/// A file or directory that could not be written or read.
class StorageError : public Error {
    using Error::Error;
};

/// A storage service failed in a way that may be transient, such as overload or a lost connection.
class TransientStorageError : public StorageError {
    using StorageError::StorageError;
};

/// Ranks could not communicate.
class CommError : public Error {
    using Error::Error;
};

/// Another rank failed or exited while this one waited for it; that rank's error is the cause.
class PeerError : public CommError {
    using CommError::CommError;
};

/// mpirun could not be started, or ended without an outcome of the training.
class LaunchError : public Error {
    using Error::Error;
};

/// The run was preempted and saved; the same command resumes it.
class PreemptionError : public Error {
public:
    static constexpr const char* own_code = "RT-T3"; ///< what code() returns
    explicit PreemptionError(const std::string& message) : Error(own_code, message) {}
};

/// Thrown by `Trainer::fit` when the training function failed on one or more ranks.
class TrainingFailedError : public Error {
public:
    /// `failures`: one for each rank that failed or died.
    TrainingFailedError(const std::string& message, std::vector<Failure> failures)
        : Error("RT-T1", message), failures_(std::move(failures)) {
        for (const Failure& failure : failures_) {
            worker_failures_[failure.rank] = failure.text();
            if (failure.kind == Failure::Kind::died) {
                died_.push_back(failure.rank);
            }
        }
    }

    /// One failure per rank. Ranks that only failed because another did are left out.
    [[nodiscard]] const std::vector<Failure>& failures() const noexcept { return failures_; }
    /// The same as a map of rank -> message.
    [[nodiscard]] const std::map<int, std::string>& worker_failures() const noexcept {
        return worker_failures_;
    }
    /// The ranks whose processes died without throwing.
    [[nodiscard]] const std::vector<int>& died() const noexcept { return died_; }

private:
    std::vector<Failure> failures_;
    std::map<int, std::string> worker_failures_;
    std::vector<int> died_;
};

namespace detail {

/// The class of an error with that code is the same wherever it is thrown: docs/errors.md lists it.
/// Most letters have one class; the exceptions are listed here.
[[noreturn]] inline void throw_error(const std::string& code, const std::string& message) {
    const char letter = code.size() > 3 ? code[3] : '?';
    const auto is = [&](char of, std::initializer_list<std::string_view> numbers) {
        bool found = false;
        for (const std::string_view number : numbers) {
            found = found || (letter == of && std::string_view(code).substr(4) == number);
        }
        return found;
    };
    if (is('X', {"1", "4", "9"})) {
        throw PeerError(code, message);
    }
    if (is('S', {"11", "12", "13"})) {
        throw TransientStorageError(code, message);
    }
    if (is('N', {"1", "2", "3", "4", "10"}) || is('V', {"60", "66", "67"})) {
        throw ConfigError(code, message);
    }
    if (is('U', {"80", "85", "100", "106"})) {
        throw StorageError(code, message);
    }
    if (is('U', {"114"})) {
        throw LaunchError(code, message);
    }
    if (is('F', {"15", "16"})) {
        throw ModelError(code, message);
    }
    if (letter == 'U' && !is('U', {"88", "102", "105"})) {
        throw ConfigError(code, message);
    }
    if (code == PreemptionError::own_code) {
        throw PreemptionError(message);
    }
    switch (letter) {
    case 'C':
    case 'F':
        throw ConfigError(code, message);
    case 'D':
        throw DataError(code, message);
    case 'M':
        throw ModelError(code, message);
    case 'K':
        throw CheckpointError(code, message);
    case 'S':
        throw StorageError(code, message);
    case 'N':
        throw CommError(code, message);
    case 'X':
        throw CommError(code, message);
    case 'L':
        throw LaunchError(code, message);
    default:
        throw Error(code, message);
    }
}

/// Streams the arguments into a string; for error messages.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
    auto out = strict(std::ostringstream());
    (out << ... << parts);
    return out.str();
}

} // namespace detail
} // namespace rtrain
