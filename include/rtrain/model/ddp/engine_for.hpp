// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the engine that prepares a model, by the type of the options that `worker.prepare(model,
/// options)` gets. A new engine specialises EngineFor for its options; the worker depends on none.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>

#include <concepts>
#include <memory>

namespace rtrain {

/// A specialisation has `template <class M, Backend B> static auto
/// prepare(std::shared_ptr<detail::AnyBackend>, std::shared_ptr<M>, const Options&)`. It returns
/// the handle that users get, with `prepared()`: a std::shared_ptr of a detail::PreparedModel,
/// which the worker saves in checkpoints.
template <class Options>
struct EngineFor;

} // namespace rtrain
