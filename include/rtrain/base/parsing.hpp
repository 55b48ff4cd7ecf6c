// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading what was written elsewhere: what goes wrong in it is told as damage of that file.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <exception>
#include <new>

namespace rtrain::detail {

/// What `parse()` returns. What it throws is thrown as `damaged(why)`, but for what says nothing
/// about the file: too little memory, and a storage that fails for now.
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
