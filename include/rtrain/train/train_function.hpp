// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrainFunction: a function of the worker, and optionally of the config, which may be a struct.
///
/// The smallest one: `[](auto& worker) {}`. Declare the worker as `auto&`; its type follows from
/// the trainer's policies. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/typed_function.hpp>

#include <functional>

namespace rtrain {

template <class F, class Worker>
concept TrainFunction = detail::ConfiguredFunction<F, Worker>;

class Run;
namespace launch {
class CallSource;
} // namespace launch

namespace detail {

/// The user's function, bound to a worker for this run.
using RunFunction = std::function<void(Run&)>;
/// The same for a run that serves main()'s calls (creators/client.hpp).
using CallFunction = std::function<void(Run&, launch::CallSource&)>;

} // namespace detail
} // namespace rtrain
