// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses external files: reports parse errors as damage of the file. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <exception>
#include <new>

namespace rtrain::detail {

/// Returns the result of `parse()`. Rethrows its exceptions as `damaged(why)`, except for those
/// that are not about the file: out of memory, and transient storage failures.
template <class Parse, class Damaged>
[[nodiscard]] auto parsed(const Parse& parse, const Damaged& damaged) {
    try {
        return parse();
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const TransientStorageError&) {
        throw;
    } catch (const std::exception& error) {
        throw damaged(error.what());
    }
}

} // namespace rtrain::detail
