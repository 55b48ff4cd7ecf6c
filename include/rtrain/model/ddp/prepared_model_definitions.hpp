// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door prepared_model.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/ddp/engine.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>

#include <memory>
#include <utility>

namespace rtrain::detail {

[[nodiscard]] RTRAIN_DOOR std::shared_ptr<PreparedModel>
prepare_model(std::shared_ptr<AnyBackend> backend, const std::shared_ptr<torch::nn::Module>& module,
              const DataParallelOptions& options) {
    return std::make_shared<Engine>(std::move(backend), module, options);
}

} // namespace rtrain::detail
