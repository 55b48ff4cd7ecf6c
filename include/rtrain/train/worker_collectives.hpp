// SPDX-License-Identifier: Apache-2.0
/// @file
/// WorkerCollectives: a worker's collectives on tensors and plain values.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/comm/kernels/exact_sum.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/train/worker_identity.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace rtrain {

/// Collectives of a worker.
class WorkerCollectives : public WorkerIdentity {
public:
    /// Waits for all ranks. *Collective.*
    void barrier() { ranks()->barrier(); }

    /// Overwrites a tensor with rank `root`'s. *Collective.*
    void broadcast(at::Tensor& tensor, int root = 0) { ranks()->broadcast(tensor, root); }
    /// Returns rank `root`'s value: a number, string, or JSON. *Collective.*
    template <class T>
    requires detail::PlainValue<T>
    [[nodiscard]] T broadcast(const T& value, int root = 0) {
        const UserCall::In in(UserCall::broadcast);
        if constexpr (std::same_as<T, std::string>) {
            return detail::broadcast(*ranks(), value, root);
        } else if constexpr (std::is_arithmetic_v<T>) {
            at::Tensor bytes = as_bytes(value);
            ranks()->broadcast(bytes, root);
            return from_bytes<T>(bytes);
        } else {
            const auto text = detail::broadcast(*ranks(), boost::json::serialize(value), root);
            return boost::json::value_to<T>(json::parse(text));
        }
    }

    /// Reduces a tensor in place over all ranks. *Collective.* Throws CommError [RT-X26] if a sum
    /// of integers overflows their type.
    void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
        const c10::NoGradGuard no_grad;
        ranks()->all_reduce(tensor, op);
    }
    /// Returns the number reduced over all ranks. *Collective.* Throws CommError [RT-X26] if a sum
    /// overflows its type, [RT-X7] for a mean of integers.
    template <class T>
    requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) [[nodiscard]] T
        all_reduce(T value, ReduceOp op = ReduceOp::sum) {
        const UserCall::In in(UserCall::all_reduce);
        if constexpr (std::floating_point<T>) {
            at::Tensor tensor = at::full({1}, static_cast<double>(value), at::kDouble);
            ranks()->all_reduce(tensor, op);
            return static_cast<T>(tensor.item<double>());
        } else {
            using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
            return narrowed<T>(reduced(static_cast<Wide>(value), op));
        }
    }

    /// Returns the tensors of all ranks, which have equal shapes, by rank. *Collective.*
    [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& tensor) {
        const c10::NoGradGuard no_grad;
        return ranks()->all_gather(tensor).unbind(0);
    }
    /// Returns the numbers of all ranks, by rank. *Collective.*
    template <class T>
    requires std::is_arithmetic_v<T>
    [[nodiscard]] std::vector<T> all_gather(T value) {
        const UserCall::In in(UserCall::all_gather);
        const at::Tensor gathered = ranks()->all_gather(as_bytes(value));
        std::vector<T> values;
        for (int rank = 0; rank < size(); ++rank) {
            values.push_back(from_bytes<T>(gathered[rank]));
        }
        return values;
    }

    /// Reduces a tensor of shape (size, ...) and returns row rank() of the result. *Collective.*
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
        const c10::NoGradGuard no_grad;
        return ranks()->reduce_scatter(tensor, op);
    }

protected:
    using WorkerIdentity::WorkerIdentity;
    ~WorkerCollectives() = default;

private:
    template <class Wide>
    [[nodiscard]] Wide reduced(Wide value, ReduceOp op) {
        comm::require_reducible(at::kLong, op);
        constexpr bool is_signed = std::is_signed_v<Wide>;
        // Backends order int64, and sum other types as comm::reduced_exactly() says.
        const bool flips = !is_signed && op != ReduceOp::sum;
        constexpr std::uint64_t top_bit = std::uint64_t{1} << 63;
        auto bits = static_cast<std::uint64_t>(value) ^ (flips ? top_bit : 0);
        at::Tensor tensor = at::from_blob(&bits, {1}, is_signed || flips ? at::kLong : at::kUInt64);
        ranks()->all_reduce(tensor, op);
        return static_cast<Wide>(bits ^ (flips ? top_bit : 0));
    }
    template <class T, class Wide>
    [[nodiscard]] T narrowed(Wide sum) const {
        if (static_cast<Wide>(static_cast<T>(sum)) != sum) {
            throw CommError("RT-X26",
                            detail::concat("a sum over ", size(), " ranks is ", sum,
                                           ", but its type holds ", +std::numeric_limits<T>::min(),
                                           " to ", +std::numeric_limits<T>::max(),
                                           "; reduce a wider type, such as std::int64_t"));
        }
        return static_cast<T>(sum);
    }

    template <class T>
    static at::Tensor as_bytes(const T& value) {
        return detail::to_bytes({reinterpret_cast<const char*>(&value), sizeof value});
    }
    template <class T>
    static T from_bytes(const at::Tensor& bytes) {
        T value{};
        std::memcpy(&value, bytes.const_data_ptr(), sizeof value);
        return value;
    }
};

} // namespace rtrain
