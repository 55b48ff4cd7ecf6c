// SPDX-License-Identifier: Apache-2.0
#include <rtrain/program/command_line_definitions.hpp>
#include <rtrain/program/module_link_definitions.hpp>
#include <rtrain/program/process/node_server_definitions.hpp>
#include <rtrain/program/process/preload_server_definitions.hpp>
#include <rtrain/program/program_run_definitions.hpp>
#include <rtrain/program/program_task_definitions.hpp>
#include <rtrain/program/program_trainer_definitions.hpp>
#include <rtrain/program/rank_parent_definitions.hpp>
