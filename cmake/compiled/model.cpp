// SPDX-License-Identifier: Apache-2.0
#include <rtrain/model/convert_sync_batch_norm_definitions.hpp>
#include <rtrain/model/engine.hpp>
#include <rtrain/model/recompute_definitions.hpp>
#include <rtrain/model/sync_batch_norm_definitions.hpp>
