// SPDX-License-Identifier: Apache-2.0
/// @file
/// A state at one moment, taken apart: tensors by name, and everything else as JSON. What a
/// checkpoint policy writes and reads.
///
/// The checkpoint/ room holds policies, the on-disk format and retention. It may include storage/,
/// error.hpp, config.hpp and torch; state.hpp, result.hpp and run.hpp include it.
#pragma once

#include <ATen/core/Tensor.h>

#include <boost/json/object.hpp>

#include <map>
#include <string>

namespace rtrain::checkpoint {

/// Tensors may be those of the live model, so a policy that returns before they are written copies
/// them first.
struct Snapshot {
    std::map<std::string, at::Tensor> tensors;
    boost::json::object values;
};

} // namespace rtrain::checkpoint
