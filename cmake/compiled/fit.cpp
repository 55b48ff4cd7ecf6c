// SPDX-License-Identifier: Apache-2.0
#include <rtrain/fit/callbacks/averaged_weights_definitions.hpp>
#include <rtrain/fit/checks_definitions.hpp>
#include <rtrain/fit/gathered_rows_definitions.hpp>
#include <rtrain/fit/gradients_definitions.hpp>
#include <rtrain/fit/logged_definitions.hpp>
#include <rtrain/fit/optimizers_definitions.hpp>
#include <rtrain/fit/plan_definitions.hpp>
#include <rtrain/fit/callbacks/update_batch_norm_definitions.hpp>
