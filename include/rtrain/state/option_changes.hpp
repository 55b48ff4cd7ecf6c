// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports optimizer options that differ between the checkpoint and the program. The checkpoint's
/// values are used: a schedule may have changed them, and a change in the program has no effect.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <string>

namespace rtrain::checkpoint::optim {

/// On rank 0. `prefix`: the optimizer's name in the state; `saved` and `given` have the same keys.
inline void say_option_changes(const std::string& prefix, std::size_t group,
                               const boost::json::object& saved, const boost::json::object& given) {
    const auto text = [](const boost::json::value& value) {
        return value.is_double() ? rtrain::detail::concat(value.get_double())
                                 : json::serialize(value);
    };
    std::string changes;
    for (const auto& item : given) {
        const boost::json::value& restored = saved.at(item.key());
        if (restored != item.value()) {
            const std::string key = item.key();
            changes += rtrain::detail::concat(changes.empty() ? "" : ", ",
                                              key.substr(key.rfind('/') + 1), " = ", text(restored),
                                              " (the program has ", text(item.value()), ')');
        }
    }
    if (!changes.empty() && console::settings().rank <= 0) {
        console::say("\"%s\", parameter group %zu, uses the checkpoint's %s; to change it, set it "
                     "after the checkpoint is loaded",
                     prefix.substr(0, prefix.find_last_not_of('/') + 1).c_str(), group,
                     changes.c_str());
    }
}

} // namespace rtrain::checkpoint::optim
