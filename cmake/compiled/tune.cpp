// SPDX-License-Identifier: Apache-2.0
#include <rtrain/tune/record/result_grid_definitions.hpp>
#include <rtrain/tune/search/domain_definitions.hpp>
#include <rtrain/tune/search/parameters_definitions.hpp>
#include <rtrain/tune/search/space_definitions.hpp>
