// SPDX-License-Identifier: Apache-2.0
#include <rtrain/model/script/save_script_definitions.hpp>
#include <rtrain/model/script/script_module_definitions.hpp>
#include <rtrain/model/script/script_part_definitions.hpp>
