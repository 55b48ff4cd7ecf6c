// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an exception says to people.
#pragma once

#include <rtrain/base/error.hpp>

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace rtrain::detail {

/// `what()`, without the stack that libtorch's errors carry.
[[nodiscard]] inline std::string text_of(const std::exception& exception) {
    if (const auto* const error = dynamic_cast<const c10::Error*>(&exception)) {
        return error->what_without_backtrace();
    }
    return exception.what();
}

/// The code of an rtrain::Error; RT-T2 for anything else.
[[nodiscard]] inline std::string code_of(const std::exception& exception) {
    const auto* const error = dynamic_cast<const Error*>(&exception);
    return error != nullptr ? error->code() : "RT-T2";
}

/// The text without an rtrain::Error's code.
[[nodiscard]] inline std::string message_of(const std::exception& exception) {
    const auto* const error = dynamic_cast<const Error*>(&exception);
    return error != nullptr ? error->message() : text_of(exception);
}

} // namespace rtrain::detail
