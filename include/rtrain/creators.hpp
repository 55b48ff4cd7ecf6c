// SPDX-License-Identifier: Apache-2.0
/// @file
/// CreatorTrainer: a trainer made of creators of model, data and optimizer, whose train(),
/// validate(), save() and restore() main() calls one after another. Guide: docs/creators.md
///
/// @code
/// rtrain::CreatorTrainer trainer{rtrain::CreatorOptions{
///     .model_creator = [](const rtrain::Config&) { return torch::nn::Linear(1, 1); },
///     .data_creator = [](const rtrain::Config&) { return std::pair(line(1000), line(400)); },
///     .num_replicas = 2, .batch_size = 512}};
/// while (trainer.validate().validation_loss > 1e-3) {
///     std::cout << trainer.train().train_loss << '\n';
/// }
/// @endcode
#pragma once

#include <rtrain/creators/creator_trainer.hpp>
#include <rtrain/creators/options.hpp>
#include <rtrain/creators/stats.hpp>
#include <rtrain/creators/trainable.hpp>
#include <rtrain/trainer.hpp>
