// SPDX-License-Identifier: Apache-2.0
#include <rtrain/track/comet_definitions.hpp>
#include <rtrain/track/image_definitions.hpp>
#include <rtrain/track/json_lines_definitions.hpp>
#include <rtrain/track/live_page_definitions.hpp>
#include <rtrain/track/mlflow_definitions.hpp>
#include <rtrain/track/tensorboard_definitions.hpp>
#include <rtrain/track/url_definitions.hpp>
#include <rtrain/track/wandb_definitions.hpp>
