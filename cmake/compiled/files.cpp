// SPDX-License-Identifier: Apache-2.0
#include <rtrain/base/json_definitions.hpp>
#include <rtrain/checkpoint/checkpoint_definitions.hpp>
#include <rtrain/checkpoint/policy/sharded_definitions.hpp>
#include <rtrain/checkpoint/policy/sync_definitions.hpp>
#include <rtrain/config/config_value_definitions.hpp>
#include <rtrain/config/stop_definitions.hpp>
#include <rtrain/data/batches_definitions.hpp>
#include <rtrain/data/dataset/dataset_definitions.hpp>
#include <rtrain/data/loops_definitions.hpp>
#include <rtrain/data/order/sampler_definitions.hpp>
#include <rtrain/data/readers/idx_definitions.hpp>
#include <rtrain/data/stream/lane_chunks_definitions.hpp>
#include <rtrain/data/stream/lane_steps_definitions.hpp>
#include <rtrain/data/stream/lanes_definitions.hpp>
#include <rtrain/data/stream/stream_reader_definitions.hpp>
#include <rtrain/journal/result_definitions.hpp>
#include <rtrain/state/module_state_definitions.hpp>
#include <rtrain/state/optimizer_state_definitions.hpp>
#include <rtrain/state/progress_definitions.hpp>
#include <rtrain/state/scheduler_state_definitions.hpp>
#include <rtrain/state/state_definitions.hpp>
#include <rtrain/state/tensor_state_definitions.hpp>

template std::shared_ptr<rtrain::checkpoint::AnyPolicy>
    rtrain::checkpoint::any_policy(rtrain::checkpoint::Sync);
