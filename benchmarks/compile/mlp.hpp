// SPDX-License-Identifier: Apache-2.0
/// @file
/// The README's model.
#pragma once

#include <torch/torch.h>

struct MlpImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 512));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));
    torch::Tensor forward(torch::Tensor image) { return out(torch::relu(in(image.flatten(1)))); }
};
TORCH_MODULE(Mlp);
