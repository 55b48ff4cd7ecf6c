// SPDX-License-Identifier: Apache-2.0
/// @file
/// Networks written in Python, trained from C++: ScriptModel loads what torch.jit.script and
/// torch.jit.trace export, and save_script() writes it with the trained weights. Guide:
/// docs/python-models.md
///
/// @code
/// auto model = worker.prepare(rtrain::ScriptModel("net.pt"));
/// ...
/// rtrain::save_script(model, "tuned.pt"); // torch.jit.load("tuned.pt") in Python
/// @endcode
#pragma once

#include <rtrain/model/script/save_script.hpp>
#include <rtrain/model/script/script_model.hpp>
