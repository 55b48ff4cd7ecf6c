// SPDX-License-Identifier: Apache-2.0
/// @file
/// Marks modules whose code is a script (script/script_part.hpp), for code that does not include
/// TorchScript's headers.
#pragma once

namespace rtrain::detail {

class ScriptedModule {
public:
    ScriptedModule() = default;
    ScriptedModule(const ScriptedModule&) = default;
    ScriptedModule& operator=(const ScriptedModule&) = default;
    virtual ~ScriptedModule() = default;
};

} // namespace rtrain::detail
