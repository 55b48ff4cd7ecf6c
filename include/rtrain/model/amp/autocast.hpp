// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mixed precision: running a part of the program under torch's autocast.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace rtrain {

/// While it lives, this thread computes matrix products, convolutions and the like in a 16-bit
/// type, and what needs the range or precision in float32, as `torch.autocast` in Python does.
/// Parameters and their gradients stay float32. Leave it before `backward()`.
///
/// bfloat16 has float32's range; float16 does not, and needs a GradScaler. Throws ModelError
/// [RT-M17] for other types.
///
/// `prepare(model, {.autocast = at::kBFloat16})` runs forward under it.
class Autocast {
public:
    explicit Autocast(at::ScalarType type, at::DeviceType device = at::kCPU);
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;
    ~Autocast();

private:
    void forget_if_changed(at::ScalarType type) const;

    at::DeviceType device_;
    bool enabled_before_;
    at::ScalarType type_before_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/amp/autocast_definitions.hpp>
#endif
