// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door stop.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/stop.hpp>

namespace rtrain::stop {

RTRAIN_DOOR Condition::Condition(const Condition& other) = default;
RTRAIN_DOOR Condition::Condition(Condition&& other) noexcept = default;
RTRAIN_DOOR Condition& Condition::operator=(const Condition& other) = default;
RTRAIN_DOOR Condition& Condition::operator=(Condition&& other) noexcept = default;
RTRAIN_DOOR Condition::~Condition() = default;

} // namespace rtrain::stop
