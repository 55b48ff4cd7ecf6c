// SPDX-License-Identifier: Apache-2.0
#include <rtrain/train/epochs_definitions.hpp>
#include <rtrain/train/trainer_core_definitions.hpp>
#include <rtrain/train/worker_loops_definitions.hpp>
#include <rtrain/train/worker_reports_definitions.hpp>
