// SPDX-License-Identifier: Apache-2.0
#include <rtrain/trainer.hpp>

rtrain::TrainerOptions options(const char* storage) {
    const auto x = at::linspace(-1, 1, 100).unsqueeze(1);
    return {.scaling = {.num_workers = 2},
            .run = {.storage_path = storage},
            .datasets = {{"train", rtrain::data::from_tensors({{"x", x}, {"y", 2 * x}})}}};
}
