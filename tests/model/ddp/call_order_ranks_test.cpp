// SPDX-License-Identifier: Apache-2.0
// Ranks whose backward passes come in different orders: each is told its own and another's.
#include "support/training.hpp"

#include <rtrain/backend/mpi.hpp>
#include <rtrain/model/data_parallel.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace rtrain;

namespace {

/// Two models of one shape, prepared on all ranks; `train(model)` is one of their steps.
template <class Act>
std::string clash(bool check_calls, const DataParallelOptions& options, Act&& act) {
    auto mpi = std::make_shared<backend::Mpi>(
        backend::Mpi::Options{.timeout = std::chrono::seconds(120), .check_calls = check_calls});
    mpi->start({});
    using Model = DataParallel<torch::nn::LinearImpl, backend::Mpi>;
    Model first(mpi, std::make_shared<torch::nn::LinearImpl>(4, 3), options);
    Model second(mpi, std::make_shared<torch::nn::LinearImpl>(4, 3), options);
    const auto train = [](Model& model) { model(torch::ones({2, 4})).sum().backward(); };
    train(first);
    train(second);
    const auto message = test::message_of([&] { act(mpi->rank(), train, first, second); });
    (void)mpi->finish(message.empty() ? Outcome() : Failure{.message = message});
    return message;
}

bool is_alone() {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size == 1;
}

} // namespace

TEST_CASE("CallOrder.of_two_models_that_differs_is_told" * doctest::timeout(300)) {
    for (const Hook& hook : {Hook(hook::None{}), Hook(hook::Float16{})}) {
        for (const bool check_calls : {false, true}) {
            CAPTURE(check_calls);
            const auto message = clash(check_calls, {.hook = hook},
                                       [](int rank, auto& train, auto& first, auto& second) {
                                           train(rank == 0 ? first : second);
                                           train(rank == 0 ? second : first);
                                       });
            if (is_alone()) {
                CHECK(message.empty());
                continue;
            }
            CAPTURE(message);
            const std::string bucket = "(gradients of \"bias\" to \"weight\" in "
                                       "torch::nn::LinearImpl, reduction ";
            CHECK(test::contains(message, "RT-X10"));
            CHECK(test::contains(message, "of a bucket of 15"));
            CHECK(test::contains(message, bucket + "1)"));
            CHECK(test::contains(message, bucket + "2)"));
        }
    }
}

TEST_CASE("CallOrder.a_skipped_backward_is_told" * doctest::timeout(300)) {
    for (const bool check_calls : {false, true}) {
        CAPTURE(check_calls);
        const auto message =
            clash(check_calls, {}, [](int rank, auto& train, auto& first, auto& second) {
                if (rank != 0) {
                    train(first);
                }
                train(second);
            });
        CHECK(test::contains(message, "RT-X10") == !is_alone());
    }
}
