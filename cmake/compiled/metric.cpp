// SPDX-License-Identifier: Apache-2.0
#include <rtrain/metric/aggregates_definitions.hpp>
#include <rtrain/metric/calibration_definitions.hpp>
#include <rtrain/metric/classification_definitions.hpp>
#include <rtrain/metric/collection_definitions.hpp>
#include <rtrain/metric/curves_definitions.hpp>
#include <rtrain/metric/growing_collection_definitions.hpp>
#include <rtrain/metric/metric_definitions.hpp>
#include <rtrain/metric/perplexity_definitions.hpp>
#include <rtrain/metric/regression_definitions.hpp>
