// SPDX-License-Identifier: Apache-2.0
#include <rtrain/model/activation/recompute_definitions.hpp>
#include <rtrain/model/amp/autocast_definitions.hpp>
#include <rtrain/model/batch_norm/convert_sync_batch_norm_definitions.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm_definitions.hpp>
#include <rtrain/model/construct_definitions.hpp>
#include <rtrain/model/ddp/captured_step_definitions.hpp>
#include <rtrain/model/ddp/gradient_arena_definitions.hpp>
#include <rtrain/model/ddp/prepared_model_definitions.hpp>
#include <rtrain/model/lr_schedule_definitions.hpp>
#include <rtrain/model/optimizer/node_step_definitions.hpp>
#include <rtrain/model/optimizer/shard_step_definitions.hpp>
#include <rtrain/model/sharded/plan/units_definitions.hpp>
#include <rtrain/model/sharded/prepared_sharded_definitions.hpp>
#include <rtrain/model/weight_parts_definitions.hpp>
