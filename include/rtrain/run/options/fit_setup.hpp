// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend, policy, options and name of one fit() call.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/run/options/options.hpp>

#include <string>

namespace rtrain::detail {

/// References outlive the call.
struct FitSetup {
    AnyBackend& backend;
    checkpoint::AnyPolicy& policy;
    const TrainerOptions& options;
    std::string run_name;
    launch::FitCall call;
};

} // namespace rtrain::detail
