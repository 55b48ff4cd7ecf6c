// SPDX-License-Identifier: Apache-2.0
/// @file
/// A second model.
#pragma once

#include <torch/torch.h>

struct EncoderImpl : torch::nn::Module {
    torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(1, 8, 3));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(8 * 26 * 26, 10));
    torch::Tensor forward(torch::Tensor image) { return out(torch::relu(conv(image)).flatten(1)); }
};
TORCH_MODULE(Encoder);
