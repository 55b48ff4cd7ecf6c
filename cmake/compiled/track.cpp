// SPDX-License-Identifier: Apache-2.0
#include <rtrain/track/files/json_lines_definitions.hpp>
#include <rtrain/track/http/url_definitions.hpp>
#include <rtrain/track/lines/image_definitions.hpp>
#include <rtrain/track/live/live_page_definitions.hpp>
#include <rtrain/track/mlflow/mlflow_definitions.hpp>
#include <rtrain/track/offline/comet_definitions.hpp>
#include <rtrain/track/offline/wandb_definitions.hpp>
#include <rtrain/track/tensorboard/tensorboard_definitions.hpp>
