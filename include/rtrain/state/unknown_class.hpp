// SPDX-License-Identifier: Apache-2.0
/// @file
/// The error for an object that may have more state than rtrain would save.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/type_name.hpp>

#include <string>
#include <typeinfo>

namespace rtrain::checkpoint {

/// `what`: such as "an optimizer that rtrain can save (SGD, Adam)".
[[nodiscard]] inline CheckpointError unknown_class(const std::type_info& type,
                                                   const std::string& what) {
    const std::string name = detail::demangled(type.name());
    return CheckpointError(
        "RT-K7",
        name + " is not " + what + ", and may have more state than its base class; give " + name +
            " save(rtrain::StateWriter& out) const and load(const rtrain::StateReader& in), which "
            "save its own state, and call rtrain::checkpoint::save_as<Base>(*this, out) and "
            "load_as<Base>(*this, in) for the state of its base class");
}

} // namespace rtrain::checkpoint
