// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text of an exception, and its conversion to a Failure.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/type_name.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>

namespace rtrain::detail {

/// Returns the text of another library's exception without its stack trace; nullopt for other
/// exceptions.
using ExceptionFormatter = std::optional<std::string> (*)(const std::exception&);

/// Set by code that links libtorch (backend/torch_exceptions.hpp), so that lower layers need not.
inline std::atomic<ExceptionFormatter> foreign_exception_formatter{nullptr};

[[nodiscard]] inline std::optional<std::string> foreign_text_of(const std::exception& exception) {
    const ExceptionFormatter format = foreign_exception_formatter;
    return format != nullptr ? format(exception) : std::nullopt;
}

/// Returns `what()` without libtorch's stack trace.
[[nodiscard]] inline std::string text_of(const std::exception& exception) {
    return foreign_text_of(exception).value_or(exception.what());
}

/// Describes an exception caught by `catch (...)` that is not a std::exception: its type, and its
/// value if it is text or an integer.
[[nodiscard]] inline std::string thrown_object() noexcept {
    try {
        const std::type_info* const type = abi::__cxa_current_exception_type();
        std::string what = "an object of type " + (type != nullptr ? demangled(type->name()) : "?");
        try {
            throw;
        } catch (int value) {
            what += ", " + std::to_string(value);
        } catch (const char* value) {
            what += concat(", \"", value, '"');
        } catch (const std::string& value) {
            what += concat(", \"", value, '"');
        } catch (...) { // only the type is known
        }
        return "threw " + what + ", which is not derived from std::exception";
    } catch (const std::exception&) { // out of memory
        return {};
    }
}

/// The failure of an exception. The code is that of an rtrain::Error, also of one that libtorch
/// rethrew as its own (gather_on_use.hpp); RT-T2 for all others.
[[nodiscard]] inline Failure failure_of(const std::exception& exception) {
    if (const auto* const error = dynamic_cast<const Error*>(&exception)) {
        return failure_of(*error);
    }
    std::optional<std::string> text = foreign_text_of(exception);
    if (!text) {
        return {.code = Failure::foreign, .message = exception.what()};
    }
    const std::size_t begin = text->rfind(" [RT-");
    if (begin == std::string::npos || text->back() != ']') {
        return {.code = Failure::foreign, .message = *std::move(text)};
    }
    const auto code = ErrorCode::parse(text->substr(begin + 2, text->size() - begin - 3));
    return {.kind = kind_of_thrown(code), .code = code, .message = text->substr(0, begin)};
}

/// Returns the Failure of whatever `action` throws; nullopt if it returns.
template <class F>
[[nodiscard]] std::optional<Failure> failure_in(F&& action) {
    try {
        std::forward<F>(action)();
        return std::nullopt;
    } catch (const std::exception& error) {
        return failure_of(error);
    } catch (...) {
        return Failure{.code = Failure::foreign, .message = thrown_object()};
    }
}

} // namespace rtrain::detail
