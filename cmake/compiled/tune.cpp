// SPDX-License-Identifier: Apache-2.0
#include <rtrain/program_search/search_definitions.hpp>
#include <rtrain/tune/record/result_grid_definitions.hpp>
#include <rtrain/tune/tuner_core_definitions.hpp>
