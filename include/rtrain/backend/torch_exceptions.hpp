// SPDX-License-Identifier: Apache-2.0
/// @file
/// Registers how libtorch's exceptions are formatted (base/exception_text.hpp).
#pragma once

#include <rtrain/base/exception_text.hpp>

#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

namespace rtrain::detail {

[[nodiscard]] inline std::optional<std::string> torch_text_of(const std::exception& exception) {
    const auto* const error = dynamic_cast<const c10::Error*>(&exception);
    if (error == nullptr) {
        return std::nullopt;
    }
    const char* const shown = std::getenv("TORCH_SHOW_CPP_STACKTRACES"); // PyTorch's variable
    std::string text =
        shown != nullptr && *shown == '1' ? error->what() : error->what_without_backtrace();
    if (dynamic_cast<const c10::OutOfMemoryError*>(error) != nullptr) {
        text += "; smaller batches, DataParallelOptions::autocast, recompute() and ShardedOptions "
                "need less memory";
    }
    return text;
}

inline const bool torch_exceptions_are_registered = [] {
    foreign_exception_formatter = &torch_text_of;
    return true;
}();

} // namespace rtrain::detail
