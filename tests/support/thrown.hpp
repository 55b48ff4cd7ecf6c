// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an action throws, for tests that expect an error. Needs no more than rtrain/base/error.hpp.
#pragma once

#include <rtrain/base/error.hpp>

#include <exception>
#include <string>

namespace test {

/// The code of the rtrain::Error that `action` throws; "" when it throws none.
template <class Action>
std::string code_of(Action&& action) {
    try {
        action();
    } catch (const rtrain::Error& error) {
        return error.code();
    }
    return "";
}

/// The message of the rtrain::Error that `action` throws.
template <class Action>
std::string message_of(Action&& action) {
    try {
        action();
    } catch (const rtrain::Error& error) {
        return error.what();
    }
    return "";
}

/// The message of whatever `action` throws, or "no error".
template <class Action>
std::string error_of(Action&& action) {
    try {
        action();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

} // namespace test
