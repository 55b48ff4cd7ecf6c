// SPDX-License-Identifier: Apache-2.0
#include <rtrain/model/autocast_definitions.hpp>
#include <rtrain/model/captured_step_definitions.hpp>
#include <rtrain/model/construct_definitions.hpp>
#include <rtrain/model/convert_sync_batch_norm_definitions.hpp>
#include <rtrain/model/gradient_arena_definitions.hpp>
#include <rtrain/model/lr_schedule_definitions.hpp>
#include <rtrain/model/prepared_model_definitions.hpp>
#include <rtrain/model/recompute_definitions.hpp>
#include <rtrain/model/sharded_engine.hpp>
#include <rtrain/model/shard_step_definitions.hpp>
#include <rtrain/model/sync_batch_norm_definitions.hpp>
#include <rtrain/model/units_definitions.hpp>
