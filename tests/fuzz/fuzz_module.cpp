// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a message of the Python module rtrain.
#include "require.hpp"

#include <rtrain/program/module_message.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

using namespace rtrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const auto request =
            program::module::parse({reinterpret_cast<const char*>(data), size}); // NOLINT
        if (const auto* const hello = std::get_if<program::module::Hello>(&request)) {
            require(hello->protocol >= 0, "numbers are not negative");
        }
    } catch (const LaunchError& error) {
        require(error.code() == "RT-L9", "refusals have a code");
    }
    return 0;
}
