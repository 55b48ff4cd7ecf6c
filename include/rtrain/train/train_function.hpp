// SPDX-License-Identifier: Apache-2.0
/// @file
/// What can be trained: a function of the worker, and of the config if it wants it.
///
/// The smallest one: `[](auto& worker) {}`. Declare the worker as `auto&`; its type follows from
/// the trainer's policies. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/config.hpp>

#include <concepts>
#include <functional>

namespace rtrain {

template <class F, class Worker>
concept TrainFunction = std::invocable<F&, Worker&, const Config&> || std::invocable<F&, Worker&>;

class Run;

namespace detail {

/// The user's function, with a worker made for this run.
using RunFunction = std::function<void(Run&)>;

} // namespace detail
} // namespace rtrain
