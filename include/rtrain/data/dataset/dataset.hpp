// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets (dataset_handle.hpp), their factories and their stages.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>

#ifndef RTRAIN_COMPILED
#include <rtrain/data/dataset/dataset_definitions.hpp>
#endif
