// SPDX-License-Identifier: Apache-2.0
/// @file
/// The conformance suite of Backend: tests what the concept cannot check, for custom types. All
/// ranks run it together, started as the backend requires: under mpirun, for example.
///
/// @code
/// #include <doctest/doctest.h>
/// #include <rtrain/testing/backend.hpp>
///
/// RTRAIN_TEST_BACKEND(MyBackend, MyBackend{});
/// @endcode
///
/// defines test cases "Backend.MyBackend.broadcasts_from_every_root" and so on. Each constructs a
/// new backend on each rank. Missing optional members are tested with rtrain's fallbacks.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/capabilities.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/testing/scratch.hpp>
#include <rtrain/testing/suite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::testing {

/// Tests of rtrain's requirements for a backend, one per member; run by RTRAIN_TEST_BACKEND.
class BackendSuite {
public:
    template <Backend B>
    explicit BackendSuite(B given)
        : ranks_(std::make_unique<detail::TheBackend<B>>(std::make_shared<B>(std::move(given)))),
          finishes_(backend::CanFinish<B>) {
        ranks_->start({});
    }
    BackendSuite(const BackendSuite&) = delete;
    BackendSuite& operator=(const BackendSuite&) = delete;
    /// Sends the outcome of the test case to the other ranks, so that they do not wait for a rank
    /// that threw.
    ~BackendSuite() {
        try {
            if (!is_finished_ && std::uncaught_exceptions() > 0) {
                (void)finish(Failure{.message = "the test case threw"});
            } else if (!is_finished_) {
                check_outcomes(finish({}), {});
            }
        } catch (const std::exception& error) {
            DOCTEST_FAIL_CHECK(std::string(error.what()));
        }
    }

    void numbers_ranks_and_nodes() {
        const int rank = ranks_->rank();
        const int size = ranks_->size();
        DOCTEST_CHECK(rank >= 0);
        DOCTEST_CHECK(rank < size);
        DOCTEST_CHECK(ranks_->launched_ranks().value_or(size) == size);
        const at::Tensor mine = at::tensor(
            {rank, ranks_->node_rank(), ranks_->local_rank(), ranks_->local_size()}, at::kLong);
        const at::Tensor all = ranks_->all_gather(mine);
        DOCTEST_CHECK(all.select(1, 0).equal(at::arange(size, at::kLong)));
        const at::Tensor here =
            all.index_select(0, all.select(1, 1).eq(mine[1]).nonzero().flatten());
        DOCTEST_CHECK(here.size(0) == ranks_->local_size());
        DOCTEST_CHECK(here.select(1, 3).eq(ranks_->local_size()).all().item<bool>());
        const at::Tensor places = std::get<0>(here.select(1, 2).sort());
        DOCTEST_CHECK(places.equal(at::arange(here.size(0), at::kLong)));
    }

    /// Tests every type that rtrain itself reduces. Other types may be rejected, on all ranks, but
    /// not reduced incorrectly.
    void reduces_tensors_of_all_types_and_sizes() {
        for (const at::Device device : devices()) {
            for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong, at::kByte}) {
                for (const std::int64_t elements : {0, 1, 2, 15, 16, 17, 1000, 100'003}) {
                    DOCTEST_CAPTURE(elements);
                    check_all_reduce(elements, type, device);
                }
            }
            for (const auto type : {at::kHalf, at::kBFloat16, at::kChar, at::kShort}) {
                try {
                    check_all_reduce(1000, type, device);
                } catch (const Error&) {
                    DOCTEST_MESSAGE("the backend rejects " << std::string(c10::toString(type)));
                }
            }
        }
    }

    /// Also the same bits in every run; otherwise parameters would drift apart.
    void reduces_to_the_same_bits_everywhere() {
        for (const at::Device device : devices()) {
            const at::Tensor mine = (at::arange(12'345, at::kFloat) * (ranks_->rank() + 1)).sin();
            at::Tensor sum = mine.to(device, at::kFloat, false, true);
            ranks_->all_reduce(sum, ReduceOp::sum);
            const at::Tensor all = ranks_->all_gather(sum.cpu());
            for (int rank = 0; rank < ranks_->size(); ++rank) {
                DOCTEST_CHECK(all[rank].equal(sum.cpu()));
            }
            at::Tensor again = mine.to(device, at::kFloat, false, true);
            ranks_->all_reduce(again, ReduceOp::sum);
            DOCTEST_CHECK(again.cpu().equal(sum.cpu()));
        }
    }

    /// Elements between them are unchanged.
    void takes_strided_tensors() {
        const int size = ranks_->size();
        for (const at::Device device : devices()) {
            const at::Tensor matrix = at::zeros({4, 6}, device);
            at::Tensor column = matrix.select(1, 2);
            column.fill_(ranks_->rank() + 1);
            ranks_->all_reduce(column, ReduceOp::sum);
            const double sum = size * (size + 1) / 2.0;
            DOCTEST_CHECK(column.cpu().eq(sum).all().item<bool>());
            DOCTEST_CHECK(matrix.cpu().sum().item<double>() == 4 * sum);
            column.fill_(ranks_->rank());
            ranks_->broadcast(column, size - 1);
            DOCTEST_CHECK(column.cpu().eq(size - 1).all().item<bool>());
            DOCTEST_CHECK(matrix.cpu().sum().item<double>() == 4.0 * (size - 1));
        }
    }

    void broadcasts_from_every_root() {
        for (const at::Device device : devices()) {
            for (const auto type : {at::kFloat, at::kShort, at::kBool, at::kByte}) {
                for (int root = 0; root < ranks_->size(); ++root) {
                    at::Tensor tensor = values(ranks_->rank(), 15, type).view({3, 5}).to(device);
                    ranks_->broadcast(tensor, root);
                    DOCTEST_CHECK(tensor.cpu().equal(values(root, 15, type).view({3, 5})));
                }
            }
        }
    }

    void stacks_the_tensors_of_all_ranks() {
        for (const at::Device device : devices()) {
            for (const auto type : {at::kFloat, at::kLong, at::kByte}) {
                const at::Tensor mine = values(ranks_->rank(), 12, type).view({3, 4}).to(device);
                const at::Tensor all = ranks_->all_gather(mine.t()); // not contiguous
                DOCTEST_CHECK((all.device() == mine.device()));
                DOCTEST_CHECK((all.sizes() == at::IntArrayRef{ranks_->size(), 4, 3}));
                for (int rank = 0; rank < ranks_->size(); ++rank) {
                    const at::Tensor theirs = values(rank, 12, type).view({3, 4}).t();
                    DOCTEST_CHECK(all[rank].cpu().equal(theirs));
                }
            }
        }
    }

    void gives_each_rank_its_row_of_a_reduction() {
        const std::int64_t size = ranks_->size();
        const auto rows_of = [&](int rank) { return values(rank, size * 301, at::kFloat); };
        for (const at::Device device : devices()) {
            for (const auto op : {ReduceOp::sum, ReduceOp::max}) {
                const at::Tensor mine = rows_of(ranks_->rank()).view({size, 7, 43}).to(device);
                const at::Tensor before = mine.clone();
                const at::Tensor row = ranks_->reduce_scatter(mine, op);
                std::vector<at::Tensor> all;
                for (int rank = 0; rank < size; ++rank) {
                    all.push_back(rows_of(rank).view({size, 7, 43}));
                }
                DOCTEST_CHECK((row.device() == mine.device()));
                DOCTEST_CHECK(row.cpu().equal(combined(all, op)[ranks_->rank()]));
                DOCTEST_CHECK(mine.equal(before));
            }
        }
    }

    /// Checked with files in a directory, on one node.
    void waits_for_all_in_a_barrier() {
        const ScratchDirectory mine;
        const std::filesystem::path directory(detail::broadcast(*ranks_, mine.path().string(), 0));
        for (int late = 0; late < ranks_->size(); ++late) {
            const auto file = directory / std::to_string(late);
            if (ranks_->rank() == late) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20)); // others may run ahead
                std::ofstream(file).flush();
            }
            ranks_->barrier();
            DOCTEST_CHECK((ranks_->local_size() < ranks_->size() || std::filesystem::exists(file)));
        }
        ranks_->barrier(); // the directory is rank 0's
    }

    /// Like buckets of gradients: several are in flight, and each starts again in every pass.
    void reduces_several_buckets_again_and_again() {
        constexpr int count = 20;
        const at::TensorOptions type = at::TensorOptions(at::kFloat).device(devices().front());
        std::vector<at::Tensor> buckets;
        std::vector<std::unique_ptr<detail::AnyCollective>> reductions;
        for (int i = 0; i < count; ++i) {
            buckets.push_back(i % 2 == 0 ? ranks_->make_bucket(1000 * i + 1, type)
                                         : at::zeros({1000 * i + 1}, type));
            DOCTEST_CHECK(buckets.back().numel() == 1000 * i + 1);
            DOCTEST_CHECK(buckets.back().is_contiguous());
            DOCTEST_CHECK(buckets.back().cpu().eq(0).all().item<bool>());
            reductions.push_back(ranks_->make_reduction(buckets.back()));
        }
        for (int pass = 0; pass < 4; ++pass) {
            for (std::size_t i = 0; i < count; ++i) {
                buckets[i].copy_(fractions(ranks_->rank(), pass, buckets[i].numel()));
                reductions[i]->start();
                reductions[i / 2]->poll();
            }
            for (std::size_t i = count; i-- > 0;) {
                reductions[i]->wait();
                at::Tensor plain =
                    fractions(ranks_->rank(), pass, buckets[i].numel()).to(devices().front());
                ranks_->all_reduce(plain, ReduceOp::sum);
                DOCTEST_CHECK(buckets[i].cpu().allclose(plain.cpu(), 1e-5, 1e-6));
                check_agreement(buckets[i]);
            }
        }
    }

    /// All ranks get the same result, if supported: GradScaler relies on it.
    void tells_whether_a_reduction_is_finite() {
        const at::TensorOptions type = at::TensorOptions(at::kFloat).device(devices().front());
        at::Tensor bucket = ranks_->make_bucket(5000, type);
        const auto reduction = ranks_->make_reduction(bucket, true);
        for (int culprit = -1; culprit < ranks_->size(); ++culprit) {
            bucket.fill_(1);
            if (ranks_->rank() == culprit) {
                bucket[4321] = std::numeric_limits<float>::infinity();
            }
            reduction->start();
            reduction->wait();
            const std::optional<bool> finite = reduction->finite();
            DOCTEST_CHECK(finite.value_or(culprit < 0) == (culprit < 0));
            DOCTEST_CHECK(bucket.cpu().isfinite().all().item<bool>() == (culprit < 0));
            ranks_->barrier(); // another rank may still be reading
        }
    }

    void tells_all_ranks_how_each_has_ended() {
        const int last = ranks_->size() - 1;
        std::vector<Outcome> expected(static_cast<std::size_t>(ranks_->size()));
        expected.back() = Failure{.message = "the cause, in \"words\"\nof two lines"};
        check_outcomes(finish(ranks_->rank() == last ? expected.back() : Outcome()), expected);
    }

    /// A rank that waits for a failed rank throws the cause. Then all continue, if supported.
    void lets_no_rank_wait_for_one_that_has_failed() {
        if (!finishes_) {
            DOCTEST_MESSAGE("skipped: without finish(), ranks wait for a rank that has failed");
            return;
        }
        Outcome mine = Failure{.message = "cause"};
        if (ranks_->rank() > 0) {
            at::Tensor tensor = at::ones({1 << 20}, devices().front());
            try {
                ranks_->all_reduce(tensor, ReduceOp::sum);
                (void)tensor.cpu(); // for a device that computes asynchronously
                ranks_->barrier();
                DOCTEST_FAIL_CHECK("rank 0 left, and the others did not notice");
            } catch (const PeerError& error) {
                DOCTEST_CHECK(caused_by_another(error.code()));
                DOCTEST_CHECK(error.message().find("cause") != std::string::npos);
                mine = Failure{.kind = Failure::Kind::interrupted, .message = error.what()};
            }
        }
        const auto outcomes = finish(mine);
        DOCTEST_CHECK((outcomes && (*outcomes)[0] && (*outcomes)[0]->kind == Failure::Kind::threw));
        if (ranks_->can_rejoin()) {
            DOCTEST_CHECK(ranks_->rejoin().empty());
            is_finished_ = false;
            check_all_reduce(1 << 20, at::kFloat, devices().front());
        }
    }

private:
    /// The CPU, and the backend's device.
    [[nodiscard]] std::vector<at::Device> devices() const {
        std::vector<at::Device> found;
        if (const auto device = ranks_->device(); device && !device->is_cpu()) {
            found.push_back(*device);
        }
        found.emplace_back(at::kCPU);
        return found;
    }

    /// A rank's contribution: small integers, so that sums are exact in every type and order.
    [[nodiscard]] static at::Tensor values(int rank, std::int64_t elements, at::ScalarType type) {
        return ((at::arange(elements, at::kLong) * (rank + 3)).remainder(5) + rank % 3).to(type);
    }
    [[nodiscard]] static at::Tensor fractions(int rank, int pass, std::int64_t elements) {
        return (at::arange(elements, at::kFloat) + static_cast<float>(rank + pass)).cos();
    }

    /// The expected result, computed by ATen from all ranks' tensors.
    [[nodiscard]] static at::Tensor combined(const std::vector<at::Tensor>& all, ReduceOp op) {
        at::Tensor result = all[0].clone();
        for (std::size_t rank = 1; rank < all.size(); ++rank) {
            result = op == ReduceOp::min   ? at::minimum(result, all[rank])
                     : op == ReduceOp::max ? at::maximum(result, all[rank])
                                           : at::add(result, all[rank]);
        }
        return op == ReduceOp::mean ? result.div(static_cast<double>(all.size())) : result;
    }

    void check_all_reduce(std::int64_t elements, at::ScalarType type, at::Device device) {
        const std::string name = c10::toString(type);
        DOCTEST_CAPTURE(name);
        std::vector<at::Tensor> all;
        for (int rank = 0; rank < ranks_->size(); ++rank) {
            all.push_back(values(rank, elements, type));
        }
        for (const auto op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
            if (op == ReduceOp::mean && !at::isFloatingType(type)) {
                continue; // may be refused
            }
            at::Tensor tensor = values(ranks_->rank(), elements, type).to(device);
            ranks_->all_reduce(tensor, op);
            const at::Tensor expected = combined(all, op);
            DOCTEST_CHECK((op == ReduceOp::mean ? tensor.cpu().allclose(expected, 1e-2, 1e-6)
                                                : tensor.cpu().equal(expected)));
        }
    }

    void check_agreement(const at::Tensor& tensor) {
        const at::Tensor all = ranks_->all_gather(tensor.cpu());
        for (int rank = 1; rank < ranks_->size(); ++rank) {
            DOCTEST_CHECK(all[rank].equal(all[0]));
        }
    }

    [[nodiscard]] std::optional<std::vector<Outcome>> finish(const Outcome& mine) {
        is_finished_ = true;
        return ranks_->finish(mine);
    }

    /// `expected` is empty if all ranks finished.
    void check_outcomes(const std::optional<std::vector<Outcome>>& outcomes,
                        std::vector<Outcome> expected) const {
        expected.resize(static_cast<std::size_t>(ranks_->size()));
        DOCTEST_CHECK(outcomes.has_value() == finishes_);
        if (!outcomes) {
            return;
        }
        DOCTEST_CHECK(outcomes->size() == expected.size());
        for (std::size_t rank = 0; rank < std::min(outcomes->size(), expected.size()); ++rank) {
            const Outcome& found = (*outcomes)[rank];
            DOCTEST_CHECK(found.has_value() == expected[rank].has_value());
            if (found && expected[rank]) {
                DOCTEST_CHECK((found->kind == expected[rank]->kind));
                DOCTEST_CHECK(found->text() == expected[rank]->text());
            }
        }
    }

    std::unique_ptr<detail::AnyBackend> ranks_;
    bool finishes_;
    bool is_finished_ = false;
};

} // namespace rtrain::testing

/// RTRAIN_TEST_BACKEND(name, expression);
/// `expression` constructs a backend on this rank, which has not been started.
#define RTRAIN_TEST_BACKEND(NAME, ...)                                                             \
    RTRAIN_TESTING_BACKEND(NAME, numbers_ranks_and_nodes, __VA_ARGS__)                             \
    RTRAIN_TESTING_BACKEND(NAME, reduces_tensors_of_all_types_and_sizes, __VA_ARGS__)              \
    RTRAIN_TESTING_BACKEND(NAME, reduces_to_the_same_bits_everywhere, __VA_ARGS__)                 \
    RTRAIN_TESTING_BACKEND(NAME, takes_strided_tensors, __VA_ARGS__)                               \
    RTRAIN_TESTING_BACKEND(NAME, broadcasts_from_every_root, __VA_ARGS__)                          \
    RTRAIN_TESTING_BACKEND(NAME, stacks_the_tensors_of_all_ranks, __VA_ARGS__)                     \
    RTRAIN_TESTING_BACKEND(NAME, gives_each_rank_its_row_of_a_reduction, __VA_ARGS__)              \
    RTRAIN_TESTING_BACKEND(NAME, waits_for_all_in_a_barrier, __VA_ARGS__)                          \
    RTRAIN_TESTING_BACKEND(NAME, reduces_several_buckets_again_and_again, __VA_ARGS__)             \
    RTRAIN_TESTING_BACKEND(NAME, tells_whether_a_reduction_is_finite, __VA_ARGS__)                 \
    RTRAIN_TESTING_BACKEND(NAME, tells_all_ranks_how_each_has_ended, __VA_ARGS__)                  \
    RTRAIN_TESTING_BACKEND(NAME, lets_no_rank_wait_for_one_that_has_failed, __VA_ARGS__)           \
    static_assert(true)
/// One test case of RTRAIN_TEST_BACKEND.
#define RTRAIN_TESTING_BACKEND(NAME, HOLDS, ...)                                                   \
    RTRAIN_TESTING_CASE("Backend", NAME, BackendSuite, HOLDS, __VA_ARGS__)
