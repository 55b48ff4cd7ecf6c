// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door prepared_sharded.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/sharded/prepared_sharded.hpp>
#include <rtrain/model/sharded/sharded_engine.hpp>

#include <functional>
#include <memory>

namespace rtrain::detail {

RTRAIN_DOOR std::shared_ptr<PreparedModel>
prepare_sharded(const std::shared_ptr<AnyBackend>& backend,
                const std::shared_ptr<torch::nn::Module>& module, const ShardedOptions& options) {
    return std::make_shared<ShardedEngine>(backend, module, options);
}

RTRAIN_DOOR void edit_weights(PreparedModel& model, const std::function<void()>& edit) {
    dynamic_cast<ShardedEngine&>(model).edit(edit);
}
RTRAIN_DOOR void read_weights(PreparedModel& model, const std::function<void()>& read) {
    dynamic_cast<ShardedEngine&>(model).read(read);
}

} // namespace rtrain::detail
