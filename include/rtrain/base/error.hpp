// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every exception that rtrain throws. Each has a stable code (base/error_codes.hpp), with a
/// heading in docs/errors.md; subclasses differ in what the caller can do. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error_codes.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/base/text/visible_text.hpp>

#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// Base of all rtrain exceptions. `what()` describes what was wrong, what was expected and what to
/// do, and ends with the code. Control characters in it are escaped, because names come from files.
class Error : public std::runtime_error {
public:
    using Code = CodeOf<ErrorClass::plain>;
    Error(Code code, const std::string& message)
        : Error(code.text(), detail::visible(message), Escaped()) {}

    /// Stable identifier, for example "RT-D4".
    [[nodiscard]] const std::string& code() const noexcept { return code_; }
    /// True if this is its code.
    [[nodiscard]] bool is(ErrorCode code) const { return ErrorCode::parse(code_) == code; }
    /// `what()` without the code.
    [[nodiscard]] const std::string& message() const noexcept { return message_; }

private:
    struct Escaped {};
    Error(std::string code, std::string message, Escaped /*message*/)
        : std::runtime_error(message + " [" + code + "]"), code_(std::move(code)),
          message_(std::move(message)) {}

    std::string code_;
    std::string message_;
};

/// Options that contradict each other or the way the program was launched.
class ConfigError : public Error {
public:
    using Code = CodeOf<ErrorClass::config>;
    ConfigError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// A data set, column or data file that is missing, damaged or misused.
class DataError : public Error {
public:
    using Code = CodeOf<ErrorClass::data>;
    DataError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// A model that cannot be trained on several ranks without changes.
class ModelError : public Error {
public:
    using Code = CodeOf<ErrorClass::model>;
    ModelError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// A checkpoint that is damaged, not rtrain's, or does not match the state it is loaded into.
class CheckpointError : public Error {
public:
    using Code = CodeOf<ErrorClass::checkpoint>;
    CheckpointError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// A file or directory that could not be written or read.
class StorageError : public Error {
public:
    using Code = CodeOf<ErrorClass::storage>;
    StorageError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// A storage service failed in a way that may be transient, such as overload or a lost connection.
class TransientStorageError : public StorageError {
public:
    using Code = CodeOf<ErrorClass::transient_storage>;
    TransientStorageError(Code code, const std::string& message)
        : StorageError(code.text(), message) {}
};

/// Ranks could not communicate.
class CommError : public Error {
public:
    using Code = CodeOf<ErrorClass::comm>;
    CommError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// Another rank failed or exited while this one waited for it; that rank's error is the cause.
class PeerError : public CommError {
public:
    using Code = CodeOf<ErrorClass::peer>;
    PeerError(Code code, const std::string& message) : CommError(code.text(), message) {}
};

/// mpirun could not be started, or ended without an outcome of the training.
class LaunchError : public Error {
public:
    using Code = CodeOf<ErrorClass::launch>;
    LaunchError(Code code, const std::string& message) : Error(code.text(), message) {}
};

/// The run was preempted and saved; the same command resumes it.
class PreemptionError : public Error {
public:
    static constexpr const char* own_code = "RT-T3"; ///< what code() returns
    explicit PreemptionError(const std::string& message)
        : Error(CodeOf<ErrorClass::preemption>(own_code).text(), message) {}
};

/// Exit code of a program whose run was preempted (EX_TEMPFAIL of sysexits.h): run it again.
inline constexpr int preempted_exit_code = 75;

/// Thrown by `Trainer::fit` when the training function failed on one or more ranks.
class TrainingFailedError : public Error {
public:
    /// `failures`: one for each rank that failed or died.
    TrainingFailedError(const std::string& message, std::vector<Failure> failures)
        : Error(CodeOf<ErrorClass::training_failed>("RT-T1").text(), message),
          failures_(std::move(failures)) {
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

/// Throws the failure of another rank or process in the class that its code has.
[[noreturn]] inline void throw_error(const Failure& failure) {
    const std::string code = failure.code.text();
    const std::string& message = failure.message;
    switch (failure.code.type()) {
    case ErrorClass::config:
        throw ConfigError(code, message);
    case ErrorClass::data:
        throw DataError(code, message);
    case ErrorClass::model:
        throw ModelError(code, message);
    case ErrorClass::checkpoint:
        throw CheckpointError(code, message);
    case ErrorClass::storage:
        throw StorageError(code, message);
    case ErrorClass::transient_storage:
        throw TransientStorageError(code, message);
    case ErrorClass::comm:
        throw CommError(code, message);
    case ErrorClass::peer:
        throw PeerError(code, message);
    case ErrorClass::launch:
        throw LaunchError(code, message);
    case ErrorClass::preemption:
        throw PreemptionError(message);
    case ErrorClass::training_failed:
        throw TrainingFailedError(message, {});
    case ErrorClass::compile_time:
    case ErrorClass::message:
    case ErrorClass::plain:
        break;
    }
    throw Error(code, message);
}

/// Converts an error, to send it to other ranks or processes.
[[nodiscard]] inline Failure failure_of(const Error& error) {
    const ErrorCode code = ErrorCode::parse(error.code());
    return {.kind = kind_of_thrown(code), .code = code, .message = error.message()};
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
