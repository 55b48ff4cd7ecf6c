// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an exception says: to people, and as a Failure to whoever decides what follows.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure_json.hpp>

#include <c10/util/Exception.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::detail {

/// `what()`, without the stack that libtorch's errors carry.
[[nodiscard]] inline std::string text_of(const std::exception& exception) {
    if (const auto* const error = dynamic_cast<const c10::Error*>(&exception)) {
        return error->what_without_backtrace();
    }
    return exception.what();
}

/// What an exception says, and the code of an rtrain::Error, also of one that libtorch has made its
/// own of (gather_on_use.hpp); RT-T2 for anything else.
struct CodedText {
    std::string message;
    std::string code = Failure::foreign;
};
[[nodiscard]] inline CodedText coded_text_of(const std::exception& exception) {
    if (const auto* const error = dynamic_cast<const Error*>(&exception)) {
        return {error->message(), error->code()};
    }
    std::string text = text_of(exception);
    const std::size_t begin = text.rfind(" [RT-");
    if (dynamic_cast<const c10::Error*>(&exception) == nullptr || begin == std::string::npos ||
        text.back() != ']') {
        return {std::move(text)};
    }
    return {text.substr(0, begin), text.substr(begin + 2, text.size() - begin - 3)};
}

[[nodiscard]] inline std::string code_of(const std::exception& exception) {
    return coded_text_of(exception).code;
}
/// The text without the code.
[[nodiscard]] inline std::string message_of(const std::exception& exception) {
    return coded_text_of(exception).message;
}

[[nodiscard]] inline Failure failure_of(const std::exception& exception) {
    const std::string code = code_of(exception);
    return {.kind = kind_of_thrown(code), .code = code, .message = message_of(exception)};
}

/// The same, of whatever `action` throws; none when it returns.
template <class F>
[[nodiscard]] std::optional<Failure> failure_in(F&& action) {
    try {
        std::forward<F>(action)();
        return std::nullopt;
    } catch (const std::exception& error) {
        return failure_of(error);
    } catch (...) {
        return Failure{.code = Failure::foreign,
                       .message = "it threw something that is no std::exception"};
    }
}

} // namespace rtrain::detail
