// SPDX-License-Identifier: Apache-2.0
/// @file
/// In-place writes of a function to tensors that outlive it, such as batch norm's running
/// statistics: recorded while it runs, and undone after it has run again.
#pragma once

#include <rtrain/model/profile/recorded_inputs.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Finds which arguments operators write.
class WrittenArguments {
public:
    [[nodiscard]] static const std::vector<std::size_t>& of(const at::RecordFunction& call) {
        thread_local std::unordered_map<std::string, std::vector<std::size_t>> known;
        thread_local std::string key;
        key.assign(call.name()).append(1, '.').append(call.overload_name());
        const auto item = known.find(key);
        return item != known.end() ? item->second : known.emplace(key, look_up(call)).first->second;
    }

private:
    [[nodiscard]] static std::vector<std::size_t> look_up(const at::RecordFunction& call) {
        std::vector<std::size_t> written;
        const auto schema = call.operator_schema();
        for (std::size_t i = 0; schema && i < schema->arguments().size(); ++i) {
            const auto& argument = schema->arguments()[i];
            const bool by_schema =
                argument.alias_info() != nullptr && argument.alias_info()->isWrite();
            // batch_norm and similar operators write these, but do not declare it
            if (by_schema || argument.name() == "running_mean" ||
                argument.name() == "running_var") {
                written.push_back(i);
            }
        }
        return written;
    }
};

/// Records the storages that operators of this thread write while a Watch lives.
class InPlaceWriteLog {
public:
    class Watch {
    public:
        explicit Watch(InPlaceWriteLog& writes) : writes_(writes), before_(innermost()) {
            if (before_ == nullptr) {
                handle() = at::addThreadLocalCallback(at::RecordFunctionCallback(&Watch::entered)
                                                          .needsInputs(true)
                                                          .scopes({at::RecordScope::FUNCTION}));
            }
            innermost() = this;
        }
        Watch(const Watch&) = delete;
        Watch& operator=(const Watch&) = delete;
        ~Watch() {
            innermost() = before_;
            if (before_ == nullptr) {
                at::removeCallback(handle());
            }
        }

    private:
        [[nodiscard]] static Watch*& innermost() noexcept {
            thread_local Watch* watch = nullptr;
            return watch;
        }
        [[nodiscard]] static at::CallbackHandle& handle() noexcept {
            thread_local at::CallbackHandle added = 0;
            return added;
        }

        static std::unique_ptr<at::ObserverContext> entered(const at::RecordFunction& call) {
            const auto& written = WrittenArguments::of(call);
            if (!written.empty()) {
                const auto inputs = inputs_of(RecordedInputs{}, call);
                for (const std::size_t i : written) {
                    if (i < inputs.size()) {
                        note(inputs[i]);
                    }
                }
            }
            return nullptr;
        }
        static void note(const c10::IValue& value) {
            if (value.isTensor()) {
                note(value.toTensor());
            } else if (value.isTensorList()) {
                for (const at::Tensor& tensor : value.toTensorVector()) {
                    note(tensor);
                }
            }
        }
        static void note(const at::Tensor& tensor) {
            if (tensor.defined() && tensor.has_storage()) {
                for (Watch* watch = innermost(); watch != nullptr; watch = watch->before_) {
                    watch->writes_.add(tensor.storage());
                }
            }
        }

        InPlaceWriteLog& writes_;
        Watch* before_;
    };

    /// Removes storages that no longer exist, and those of `tensors`, the function's own results.
    void keep_all_but(const std::vector<at::Tensor>& tensors) {
        std::erase_if(written_, [&](const WeakStorage& written) {
            return written.use_count() == 0 ||
                   std::ranges::any_of(tensors, [&](const at::Tensor& tensor) {
                       return tensor.defined() && tensor.has_storage() &&
                              tensor.storage().unsafeGetStorageImpl() ==
                                  written._unsafe_get_target();
                   });
        });
        written_.shrink_to_fit();
    }

    /// Restores the present bytes on destruction, unseen by autograd.
    class Undo {
    public:
        explicit Undo(const InPlaceWriteLog& writes) {
            const c10::NoGradGuard no_grad;
            // A copy: under a Watch, clone() adds its own writes to the list.
            for (const auto all = writes.written_; const WeakStorage& written : all) {
                if (const auto storage = written.lock()) {
                    at::Tensor bytes = bytes_of(c10::Storage(storage));
                    at::Tensor before = bytes.clone();
                    kept_.emplace_back(std::move(bytes), std::move(before));
                }
            }
        }
        Undo(const Undo&) = delete;
        Undo& operator=(const Undo&) = delete;
        ~Undo() {
            const c10::NoGradGuard no_grad;
            for (auto& [bytes, before] : kept_) {
                try {
                    bytes.copy_(before);
                } catch (const c10::Error&) { // the device is lost, and training with it
                    return;
                }
            }
        }

    private:
        /// With a separate version counter.
        [[nodiscard]] static at::Tensor bytes_of(const c10::Storage& storage) {
            return at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()))
                .set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())});
        }

        std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
    };

private:
    using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

    void add(const c10::Storage& storage) {
        const auto* const target = storage.unsafeGetStorageImpl();
        const bool known = std::ranges::any_of(written_, [&](const WeakStorage& written) {
            return written._unsafe_get_target() == target;
        });
        if (!known) {
            written_.emplace_back(storage.getWeakStorageImpl());
        }
    }

    std::vector<WeakStorage> written_;
};

} // namespace rtrain::detail
