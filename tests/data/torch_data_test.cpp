// SPDX-License-Identifier: Apache-2.0
#include "passes.hpp"
#include "support/training.hpp"

#include <rtrain/data/order/sampler.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using test::check_equal_batches;
using test::code_of;
using test::sorted;

namespace {

/// torch::data's own way to make a data set.
struct Squares : torch::data::Dataset<Squares> {
    torch::data::Example<> get(std::size_t index) override {
        const auto x = torch::tensor(static_cast<std::int64_t>(index));
        return {x, x * x};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override { return 11; }
};

} // namespace

TEST_CASE("TorchData.dataset_becomes_columns") {
    const auto squares = data::from_dataset(Squares{});
    CHECK(squares.size() == 11);
    CHECK(squares.rows(torch::tensor({3, 2}, torch::kLong))["target"].equal(
        torch::tensor({9, 4}, torch::kLong)));
}

TEST_CASE("TorchData.loader_gets_a_distributed_sampler") {
    const auto rows_of = [](auto& loader) {
        std::vector<std::int64_t> rows;
        for (auto& batch : loader) {
            for (const auto& row : batch.data.unbind()) {
                rows.push_back(row.template item<std::int64_t>());
            }
        }
        return rows;
    };
    const auto dataset = [] { return Squares{}.map(torch::data::transforms::Stack<>()); };
    auto ordered = data::distribute_loader(
        torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(dataset(), 2),
        {.epoch = {.rank = 1, .size = 3}, .position = std::make_shared<data::Position>()});
    CHECK(rows_of(ordered) == std::vector<std::int64_t>{1, 4, 7, 10});
    CHECK(rows_of(ordered) == std::vector<std::int64_t>{1, 4, 7, 10});

    auto shuffled = data::distribute_loader(
        torch::data::make_data_loader<torch::data::samplers::RandomSampler>(dataset(), 2),
        {.epoch = {.rank = 0, .size = 2, .seed = 5},
         .position = std::make_shared<data::Position>()});
    const auto first = rows_of(shuffled);
    const auto second = rows_of(shuffled);
    const auto expected = data::distributed_order(
        {.rows = 11, .rank = 0, .size = 2, .epoch = 1, .shuffle = true, .seed = 5});
    CHECK(first != second);
    CHECK(torch::tensor(second).equal(expected));

    auto threaded = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        dataset(), torch::data::DataLoaderOptions(2).workers(1));
    CHECK(code_of([&] {
              (void)data::distribute_loader(
                  std::move(threaded),
                  {.epoch = {.size = 2}, .position = std::make_shared<data::Position>()});
          }) == "RT-D11");
    auto made = data::make_distributed_loader(
        dataset(), torch::data::DataLoaderOptions(2).workers(1),
        {.epoch = {.rank = 1, .size = 2}, .position = std::make_shared<data::Position>()});
    CHECK(rows_of(made) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 0});

    // It resumes after the rows that all ranks have taken.
    auto resumed = data::make_distributed_loader(
        dataset(), torch::data::DataLoaderOptions(2),
        {.epoch = {.rank = 1, .size = 2},
         .position = std::make_shared<data::Position>(data::Position{0, 8})});
    CHECK(rows_of(resumed) == std::vector<std::int64_t>{9, 0});
    CHECK(rows_of(resumed) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 0});
}

TEST_CASE("TorchData.an_evaluation_reads_each_row_once") {
    using torch::data::samplers::SequentialSampler;
    const auto dataset = [] { return Squares{}.map(torch::data::transforms::Stack<>()); };
    for (const int ranks : {1, 2, 3, 4, 13}) {
        for (const std::size_t size : {1U, 2U, 5U, 256U}) {
            CAPTURE(ranks);
            CAPTURE(size);
            std::vector<std::vector<std::vector<std::int64_t>>> evaluated;
            std::size_t trained = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                auto loader = data::distribute_loader(
                    torch::data::make_data_loader<SequentialSampler>(dataset(), size),
                    {.epoch = {.rank = rank, .size = ranks},
                     .position = std::make_shared<data::Position>()});
                const auto rows_of = [&] {
                    std::vector<std::vector<std::int64_t>> batches;
                    for (auto& batch : *loader) { // as of torch's pointer
                        const auto x = batch.data.contiguous();
                        batches.emplace_back(x.template data_ptr<std::int64_t>(),
                                             x.template data_ptr<std::int64_t>() + x.numel());
                    }
                    return batches;
                };
                {
                    const torch::NoGradGuard guard;
                    evaluated.push_back(rows_of());
                }
                for (const auto& batch : rows_of()) {
                    trained += batch.size();
                }
                CHECK(loader->options().batch_size == size);
            }
            CHECK(sorted(evaluated) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
            check_equal_batches(evaluated, 11);
            const auto each =
                (11 + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
            CHECK(trained == each * static_cast<std::size_t>(ranks));
        }
    }
}

TEST_CASE("TorchData.time_and_rows_of_a_loader_count") {
    struct Slow : torch::data::Dataset<Slow> {
        torch::data::Example<> get(std::size_t index) override {
            CHECK((ProcessContext::current().clock.part() == StepPart::data));
            return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
        }
        [[nodiscard]] std::optional<std::size_t> size() const override { return 7; }
    };
    auto stacked = data::make_distributed_loader(
        Slow{}.map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions(2),
        {.epoch = {.size = 1}, .position = std::make_shared<data::Position>()});
    auto examples = data::make_distributed_loader(
        Slow{}, torch::data::DataLoaderOptions(2),
        {.epoch = {.size = 1}, .position = std::make_shared<data::Position>()});
    (void)ProcessContext::current().clock.take();
    const auto rows_of = [](auto& loader) {
        for (auto& batch : loader) {
            (void)batch;
            CHECK((ProcessContext::current().clock.part() == StepPart::optimizer));
        }
        return ProcessContext::current().clock.take().rows;
    };
    CHECK(rows_of(stacked) == 7);
    CHECK(rows_of(examples) == 7);
    const torch::NoGradGuard guard;
    CHECK(rows_of(stacked) == 0); // which trains nothing
}
