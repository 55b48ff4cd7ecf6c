// SPDX-License-Identifier: Apache-2.0
#include <rtrain/tune/search/basic_variant_definitions.hpp>
#include <rtrain/tune/search/bohb_definitions.hpp>
#include <rtrain/tune/search/concurrency_limiter_definitions.hpp>
#include <rtrain/tune/search/domain_definitions.hpp>
#include <rtrain/tune/search/history_definitions.hpp>
#include <rtrain/tune/search/parameters_definitions.hpp>
#include <rtrain/tune/search/parzen_definitions.hpp>
#include <rtrain/tune/search/plan_definitions.hpp>
#include <rtrain/tune/search/repeater_definitions.hpp>
#include <rtrain/tune/search/space_definitions.hpp>
#include <rtrain/tune/search/tpe_definitions.hpp>
