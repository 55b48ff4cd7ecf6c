// SPDX-License-Identifier: Apache-2.0
// Metrics of all ranks' rows.
#include "metric_cases.hpp"
#include "support/bits.hpp"
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/metrics.hpp>

#include <boost/json/value_from.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

const test::MetricFixtures& fixtures() {
    static const test::MetricFixtures all(std::filesystem::path(RTRAIN_TEST_DATA) /
                                          "metric/torchmetrics.json");
    return all;
}

/// What a report holds of one metric, as plain numbers.
std::vector<double> flat(const boost::json::value& value) {
    if (!value.is_array()) {
        return {value.to_number<double>()};
    }
    std::vector<double> all;
    for (const auto& item : value.as_array()) {
        const auto inner = flat(item);
        all.insert(all.end(), inner.begin(), inner.end());
    }
    return all;
}

bool near(double value, double expected) {
    return std::isnan(expected)
               ? std::isnan(value)
               : std::abs(value - expected) <= 1e-6 * std::max(1.0, std::abs(expected));
}

/// Counts what a reduction sends.
class Counting : public HookRanks {
public:
    explicit Counting(HookRanks& ranks) : ranks_(ranks) {}
    [[nodiscard]] int rank() const override { return ranks_.rank(); }
    [[nodiscard]] int size() const override { return ranks_.size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) override {
        ++others;
        ranks_.all_reduce(tensor, op);
    }
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) override {
        ++gathers;
        return ranks_.all_gather(tensor);
    }
    void broadcast(at::Tensor& tensor, int root) override {
        ++others;
        ranks_.broadcast(tensor, root);
    }
    int gathers = 0;
    int others = 0;

private:
    HookRanks& ranks_;
};

using OwnerOf = std::function<int(std::size_t batch)>;

/// All metrics of the fixtures on this rank's share of batches, reduced together. Compared with
/// torchmetrics, and with the same metrics when this rank has seen all.
void check_cases(test::Ranks& ranks, const OwnerOf& owner_of) {
    const auto cases = fixtures().cases();
    const auto alone = fixtures().cases();
    metric::Collection all;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        all.add(std::to_string(i), *cases[i].metric);
        const auto& batches = fixtures().batches(cases[i].data);
        for (std::size_t batch = 0; batch < batches.size(); ++batch) {
            alone[i].see(batches[batch]);
            if (owner_of(batch) == ranks.rank()) {
                cases[i].see(batches[batch]);
            }
        }
    }
    const auto values = all.reduce(*ranks.any());
    for (std::size_t i = 0; i < cases.size(); ++i) {
        CAPTURE(cases[i].name);
        const auto together = flat(values.at(std::to_string(i)));
        const auto by_itself = alone[i].metric->compute().numbers();
        REQUIRE(together.size() == cases[i].expected.size());
        REQUIRE(by_itself.size() == cases[i].expected.size());
        for (std::size_t j = 0; j < together.size(); ++j) {
            CHECK(near(together[j], cases[i].expected[j]));
            if (cases[i].is_of_counts && !std::isnan(cases[i].expected[j])) {
                CHECK(together[j] == by_itself[j]);
            }
        }
    }
}

} // namespace

TEST_CASE("Metric.values_equal_torchmetrics_however_rows_are_dealt_out") {
    test::Ranks ranks;
    SUBCASE("evenly") {
        check_cases(ranks,
                    [&](std::size_t batch) { return static_cast<int>(batch) % ranks.size(); });
    }
    SUBCASE("all to the last rank") {
        check_cases(ranks, [&](std::size_t) { return ranks.size() - 1; });
    }
    SUBCASE("none to rank 0") {
        check_cases(ranks, [&](std::size_t batch) {
            return ranks.size() == 1 ? 0 : 1 + static_cast<int>(batch) % (ranks.size() - 1);
        });
    }
}

TEST_CASE("Metric.reduce_adds_in_the_order_of_ranks_and_begins_anew") {
    test::Ranks ranks;
    metric::Sum sum;
    metric::Max max;
    metric::Min min;
    metric::Mean mean;
    auto all =
        metric::Collection{}.add("a/sum", sum).add("max", max).add("min", min).add("mean", mean);
    for (int round = 0; round < 2; ++round) {
        double expected = 0;
        for (int rank = 0; rank < ranks.size(); ++rank) {
            expected += 0.1 * (rank + 1); // other bits in another order
        }
        sum.update(0.1 * (ranks.rank() + 1));
        max.update(-ranks.rank());
        min.update(at::tensor({5.0, -2.0 * ranks.rank()}));
        mean.update(at::full({2, 3}, ranks.rank(), at::kLong), 0.5);
        const auto values = all.reduce(*ranks.any());
        CHECK(values.at("a/sum") == expected);
        CHECK(values.at("max") == 0.0);
        CHECK(values.at("min") == -2.0 * (ranks.size() - 1));
        CHECK(values.at("mean").as_double() == doctest::Approx((ranks.size() - 1) / 2.0));
    }
    const auto values = all.reduce(*ranks.any()); // nothing was seen
    CHECK(values.at("a/sum") == 0.0);
    CHECK(std::isnan(values.at("mean").as_double()));
    CHECK(values.at("max") == -std::numeric_limits<double>::infinity());
}

TEST_CASE("Metric.reduce_takes_one_all_gather_and_one_more_for_samples") {
    test::Ranks ranks;
    const auto any = ranks.any();
    Counting counting(*any);
    metric::Mean mean;
    metric::ConfusionMatrix confusion;
    metric::Auroc exact;
    metric::Auroc binned({.thresholds = 5});
    auto all = metric::Collection{}
                   .add("mean", mean)
                   .add("confusion", confusion)
                   .add("exact", exact)
                   .add("binned", binned);
    mean.update(1);
    (void)all.reduce(counting);
    const int several = ranks.size() > 1 ? 1 : 0;
    CHECK(counting.gathers == several); // no rank has samples
    if (ranks.rank() == 0) {
        all.update(at::rand({3}), at::ones({3}, at::kLong));
    }
    (void)all.reduce(counting);
    CHECK(counting.gathers == 3 * several);
    CHECK(counting.others == 0);
}

TEST_CASE("Metric.collections_that_differ_between_ranks_are_an_error_on_all") {
    test::Ranks ranks;
    metric::Sum a;
    metric::Sum b;
    const bool is_other = ranks.rank() == ranks.size() - 1;
    auto all = metric::Collection{}.add(is_other ? "b" : "a", a).add(is_other ? "a" : "b", b);
    CHECK(code_of([&] { (void)all.reduce(*ranks.any()); }) == (ranks.size() > 1 ? "RT-V46" : ""));
    metric::ConfusionMatrix more({.num_classes = 9});
    if (is_other) {
        all.add("more", more);
    }
    CHECK(code_of([&] { (void)all.reduce(*ranks.any()); }) == (ranks.size() > 1 ? "RT-X10" : ""));
}

TEST_CASE("Metric.a_report_has_a_collection_s_values_with_the_bits_of_one_rank") {
    const test::Directory directory("metric");
    constexpr std::int64_t rows = 240;
    constexpr std::int64_t classes = 4;
    torch::manual_seed(3);
    const auto scores = torch::randn({rows, classes});
    const auto targets = torch::randint(classes, {rows}, at::kLong);
    const auto add_to = [](metric::Collection& all, auto& confusion, auto& f1, auto& auroc) {
        all.add("confusion", confusion).add("f1", f1).add("val/auroc", auroc);
    };
    metric::ConfusionMatrix confusion({.num_classes = classes});
    metric::F1 f1({.num_classes = classes, .average = metric::Average::macro});
    metric::Auroc auroc({.num_classes = classes});
    metric::Collection alone;
    add_to(alone, confusion, f1, auroc);
    alone.update(scores, targets);
    const auto expected = alone.compute();

    Trainer<backend::Mpi, data::Permuted> trainer(
        {.run = {.name = "reports", .storage_path = directory.path()},
         .datasets = {{"val", data::from_tensors({{"scores", scores}, {"target", targets}})}}});
    const auto result = trainer.fit([&](auto& worker) {
        metric::ConfusionMatrix its_confusion({.num_classes = classes});
        metric::F1 its_f1({.num_classes = classes, .average = metric::Average::macro});
        metric::Auroc its_auroc({.num_classes = classes});
        metric::Collection all;
        add_to(all, its_confusion, its_f1, its_auroc);
        auto state = State{}.add("metrics", all);
        for (const auto& batch : worker.dataset_shard("val").batches({.size = 7})) {
            all.update(batch["scores"], batch["target"]);
        }
        const Config values = worker.report({{"epoch", 1}, {"f1", "is replaced"}}, all, state);
        CHECK(values == expected);
        CHECK(its_confusion.compute().numbers()[0] == 0); // begins anew
    });
    CHECK(result.metrics.at("epoch") == 1);
    for (const auto& item : expected) {
        CAPTURE(std::string(item.key()));
        CHECK(result.metrics.at(item.key()) == item.value());
    }
    CHECK(flat(expected.at("confusion")) != std::vector<double>(classes * classes));
    CHECK(expected.at("confusion").at(0).at(0).is_int64());
}

TEST_CASE_TEMPLATE("Metric.a_run_taken_up_within_an_epoch_keeps_what_every_rank_has_seen", Policy,
                   checkpoint::Sync, checkpoint::AsyncSharded) {
    const test::Directory directory("metric-state");
    const auto train = [&](bool is_first) {
        Trainer<backend::Mpi, data::Sharded, Policy> trainer(
            {.run = {.name = "epoch", .storage_path = directory.path()}});
        (void)trainer.fit([&](auto& worker) {
            metric::Sum sum;
            metric::Auroc auroc;
            auto all = metric::Collection{}.add("sum", sum).add("auroc", auroc);
            const auto state = State{}.add("metrics", all);
            const int rank = worker.rank();
            const auto see = [&](double score, std::int64_t target) {
                sum.update(score);
                auroc.update(at::full({1}, score), at::full({1}, target, at::kLong));
            };
            if (is_first) {
                see(0.3 + 0.1 * rank, 1);
                if (rank == worker.size() - 1) {
                    see(0.9, 1);
                }
                worker.report({}, state); // without the collection, which keeps its values
                CHECK(sum.compute() > 0);
                return;
            }
            REQUIRE(worker.restore(state));
            const double own = 0.3 + 0.1 * rank + (rank == worker.size() - 1 ? 0.9 : 0.0);
            CHECK(sum.compute() == doctest::Approx(own));
            see(0.35, 0);
            const Config values = worker.report({}, all);
            double expected = 0.9;
            double above = 1; // positives with a higher score than the negatives
            for (int other = 0; other < worker.size(); ++other) {
                expected += 0.3 + 0.1 * other + 0.35;
                above += other > 0 ? 1 : 0;
            }
            CHECK(values.at("sum").as_double() == doctest::Approx(expected));
            CHECK(values.at("auroc").as_double() == doctest::Approx(above / (worker.size() + 1)));
        });
    };
    train(true);
    train(false);
}

TEST_CASE("Metric.states_that_hold_other_metrics_on_some_rank_are_an_error_on_all") {
    const test::Directory directory("metric-states");
    Trainer<> trainer({.run = {.name = "differ", .storage_path = directory.path()}});
    const auto message = test::message_of([&] {
        trainer.fit([&](auto& worker) {
            metric::Sum sum;
            worker.report({}, State{}.add(worker.rank() > 0 ? "other" : "sum", sum));
        });
    });
    CHECK(test::contains(message, "RT-K5") == (launch::ranks().value_or(1) > 1));
}

TEST_CASE("Metric.what_ranks_have_seen_is_dealt_out_to_other_numbers_of_ranks") {
    checkpoint::Snapshot three;
    double all = 0;
    for (int rank = 0; rank < 3; ++rank) {
        metric::Sum sum;
        sum.update(rank + 1);
        all += rank + 1;
        checkpoint::Snapshot own;
        State{}.add("sum", sum).save(own);
        three.tensors["sum/seen/" + std::to_string(rank)] = own.tensors.at("sum/seen/0");
        three.values = own.values;
    }
    for (const int ranks : {1, 2, 3, 5}) {
        metric::Sum merged;
        for (int rank = 0; rank < ranks; ++rank) {
            three.rank = rank;
            three.ranks = ranks;
            metric::Sum sum;
            sum.update(17); // forgotten
            State{}.add("sum", sum).load(three);
            CHECK(sum.compute() == (ranks == 1   ? 6
                                    : ranks == 2 ? (rank == 0 ? 4 : 2)
                                    : rank < 3   ? rank + 1
                                                 : 0));
            merged.merge(sum);
        }
        CHECK(merged.compute() == all);
    }
    three.rank = 0;
    three.ranks = 1;
    metric::Mean other;
    CHECK(code_of([&] { State{}.add("sum", other).load(three); }) == "RT-K3");
    three.tensors["sum/seen/1"] = at::zeros({7}, at::kByte);
    metric::Sum sum;
    CHECK(code_of([&] { State{}.add("sum", sum).load(three); }) == "RT-K3");
    CHECK(code_of([&] { State{}.add("else", sum).load(three); }) == "RT-K3");
}

TEST_CASE("Metric.saving_and_merging_keep_every_metric_s_bits") {
    auto halves = fixtures().cases();
    auto others = fixtures().cases();
    const auto whole = fixtures().cases();
    for (std::size_t i = 0; i < whole.size(); ++i) {
        CAPTURE(whole[i].name);
        const auto& batches = fixtures().batches(whole[i].data);
        for (std::size_t batch = 0; batch < batches.size(); ++batch) {
            whole[i].see(batches[batch]);
            (batch < 4 ? halves : others)[i].see(batches[batch]);
        }
        checkpoint::Snapshot snapshot;
        State{}.add("m", *others[i].metric).save(snapshot);
        others[i].metric->reset();
        State{}.add("m", *others[i].metric).load(snapshot);
        halves[i].metric->merge(*others[i].metric);
        const auto merged = halves[i].metric->compute().numbers();
        const auto expected = whole[i].metric->compute().numbers();
        for (std::size_t j = 0; j < expected.size(); ++j) {
            CHECK(near(merged[j], expected[j]));
            if (whole[i].is_of_counts && !std::isnan(expected[j])) {
                CHECK(merged[j] == expected[j]);
            }
        }
    }
}

TEST_CASE("Metric.R2Score_neither_cancels_nor_has_a_tolerance") {
    test::Ranks ranks;
    const auto steps = at::tensor({-3.0, -1.0, 1.0, 3.0}); // squares add up to 20
    const auto wrong = at::tensor({1.0, 0.0, 0.0, -1.0});  // to 2: R2 is 0.9
    const auto score = [&](double middle, double width) {
        metric::R2Score r2;
        auto all = metric::Collection{}.add("r2", r2);
        for (std::int64_t i = 0; i < 4; ++i) { // a row to a rank
            if (i % ranks.size() == ranks.rank()) {
                const auto target = steps.slice(0, i, i + 1).mul(width).add(middle);
                r2.update(target + wrong.slice(0, i, i + 1).mul(width), target);
            }
        }
        return all.reduce(*ranks.any()).at("r2").as_double();
    };
    for (const auto& [middle, width] :
         {std::pair(0.0, 1.0), std::pair(1e8, 1.0), std::pair(1e8, 1.0 / 16), std::pair(-1e12, 1.0),
          std::pair(0.0, 1e-4), std::pair(1e-4, 1e-8), std::pair(0.0, 1e-20)}) {
        CAPTURE(middle);
        CAPTURE(width);
        CHECK(score(middle, width) == doctest::Approx(0.9).epsilon(1e-6));
    }
    const auto constant = at::full({4}, 14.62, at::kDouble);
    const auto of = [](const metric::R2Options& options, const at::Tensor& predictions,
                       const at::Tensor& targets) {
        metric::R2Score r2(options);
        r2.update(predictions, targets);
        return r2.compute().numbers().at(0);
    };
    CHECK(of({}, constant, constant) == 1);
    CHECK(of({}, constant + 1e-6, constant) == 0);
    // Constant targets have no variance to weigh by: their mean, as scikit-learn.
    CHECK(of({.num_outputs = 2, .multioutput = metric::MultiOutput::variance_weighted},
             at::stack({constant, constant + 1}, 1), at::stack({constant, constant}, 1)) == 0.5);
}

TEST_CASE("Metric.wrong_input_names_the_metric_and_changes_nothing") {
    const auto at_index = [](std::int64_t i, std::int64_t value) {
        auto targets = at::zeros({4}, at::kLong);
        targets[i] = value;
        return targets;
    };
    const auto nan_scores = [](at::IntArrayRef shape) {
        auto scores = at::rand(shape);
        scores.view({-1})[2] = std::nan("");
        return scores;
    };
    metric::Accuracy accuracy({.num_classes = 3});
    metric::Accuracy best_two({.num_classes = 3, .top_k = 2});
    metric::ConfusionMatrix binary;
    metric::Auroc auroc;
    metric::CalibrationError calibration({.num_classes = 3});
    metric::Perplexity perplexity;
    metric::MeanSquaredError error;
    metric::R2Score r2({.num_outputs = 2});
    const auto code = [](metric::Comparison& metric, const at::Tensor& predictions,
                         const at::Tensor& targets) {
        return code_of([&] { metric.update(predictions, targets); });
    };
    const auto good = at::zeros({4}, at::kLong);
    // shapes and types
    CHECK(code(accuracy, at::rand({4, 2}), good) == "RT-V40");
    CHECK(code(accuracy, at::rand({3, 3}), good) == "RT-V40");
    CHECK(code(accuracy, at::rand({4}), good) == "RT-V40");
    CHECK(code(accuracy, at::rand({4, 3}), at::rand({4})) == "RT-V40");
    CHECK(code(accuracy, at::rand({3}), at::zeros({}, at::kLong)) == "RT-V40");
    CHECK(code(binary, at::rand({4, 1}), good) == "RT-V40");
    CHECK(code(auroc, good, good) == "RT-V40");
    CHECK(code(calibration, good, good) == "RT-V40");
    CHECK(code(perplexity, at::rand({4, 2, 3}), good) == "RT-V40");
    CHECK(code(error, at::rand({4}), at::rand({5})) == "RT-V40");
    CHECK(code(r2, at::rand({4}), at::rand({4})) == "RT-V40");
    // classes
    for (auto* const metric : {&accuracy, &best_two}) {
        CHECK(code(*metric, at::rand({4, 3}), at_index(3, 3)) == "RT-V41");
        CHECK(code(*metric, at::rand({4, 3}), at_index(0, -1)) == "RT-V41");
    }
    CHECK(code(accuracy, at_index(1, 3), good) == "RT-V41");
    CHECK(code(binary, at::rand({4}), at_index(2, 2)) == "RT-V41");
    CHECK(code(auroc, at::rand({4}), at_index(2, -100)) == "RT-V41");
    CHECK(code(perplexity, at::rand({4, 3}), at_index(2, 3)) == "RT-V41");
    // scores
    CHECK(code(accuracy, nan_scores({4, 3}), good) == "RT-V42");
    CHECK(code(best_two, nan_scores({4, 3}), good) == "RT-V42");
    CHECK(code(binary, nan_scores({4}), good) == "RT-V42");
    CHECK(code(auroc, nan_scores({4}), good) == "RT-V42");
    CHECK(code(calibration, nan_scores({4, 3}), good) == "RT-V42");
    CHECK(code(calibration, at::full({4, 3}, -HUGE_VAL), good) == "RT-V42");
    CHECK(code(perplexity, nan_scores({4, 3}), good) == "RT-V42");
    CHECK(accuracy.compute() == 0); // nothing was seen
    CHECK(flat(boost::json::value_from(binary.compute().numbers())) == std::vector<double>(4));
    CHECK(std::isnan(auroc.compute()));
    CHECK(std::isnan(calibration.compute()));
    CHECK(std::isnan(perplexity.compute()));
    CHECK(std::isnan(error.compute()));
    CHECK(std::isnan(r2.compute()));
    // what an error says
    auto named = metric::Collection{}.add("val/top1", accuracy);
    const auto said = message_of([&] { named.update(at::rand({4, 3}), at_index(3, 3)); });
    CHECK(contains(said, "metric \"val/top1\" (Accuracy)"));
    CHECK(contains(said, "target number 3 is class 3; expected 0 to 2"));
    CHECK(code_of([&] { named.add("val/top1", binary); }) == "RT-V46");
    CHECK(code_of([&] { named.add("", binary); }) == "RT-V46");
    CHECK(code_of([&] { accuracy.merge(binary); }) == "RT-V44");
    CHECK(code_of([&] {
              accuracy.merge(
                  metric::Accuracy({.num_classes = 3, .average = metric::Average::none}));
          }) == "RT-V44");
    CHECK(code_of([&] { (void)static_cast<double>(binary.compute()); }) == "RT-V45");
}

TEST_CASE("Metric.empty_batches_change_nothing") {
    metric::Accuracy accuracy({.num_classes = 3});
    metric::Auroc auroc({.num_classes = 3});
    metric::F1 labels({.num_labels = 2});
    metric::CalibrationError calibration;
    metric::Perplexity perplexity;
    metric::Mean mean;
    const auto none = at::empty({0}, at::kLong);
    accuracy.update(at::empty({0, 3}), none);
    auroc.update(at::empty({0, 3}), none);
    labels.update(at::empty({0, 2}), at::empty({0, 2}, at::kLong));
    calibration.update(at::empty({0}), none);
    perplexity.update(at::empty({0, 5}), none);
    mean.update(at::empty({0}));
    CHECK(accuracy.compute() == 0);
    CHECK(std::isnan(auroc.compute()));
    CHECK(labels.compute() == 0);
    CHECK(std::isnan(calibration.compute()));
    CHECK(std::isnan(perplexity.compute()));
    CHECK(std::isnan(mean.compute()));
}

TEST_CASE("Metric.NaN_is_kept_left_out_or_an_error") {
    const double nan = std::nan("");
    metric::Max kept;
    kept.update(at::tensor({1.0, nan, 3.0}));
    kept.update(4);
    CHECK(std::isnan(kept.compute()));
    metric::Mean ignoring({.nan = metric::Nan::ignore});
    ignoring.update(at::tensor({1.0, nan, 3.0}), at::tensor({1.0, 1.0, nan}));
    CHECK(ignoring.compute() == 1);
    metric::Min strict({.nan = metric::Nan::error});
    CHECK(code_of([&] { strict.update(nan); }) == "RT-V42");
    metric::Mean mean;
    CHECK(code_of([&] { mean.update(at::rand({2, 3}), at::rand({2})); }) == "RT-V40");
}

TEST_CASE("Metric.options_that_do_not_fit_are_errors") {
    using metric::Average;
    CHECK(code_of([] { metric::Accuracy({.num_classes = 1}); }) == "RT-V43");
    CHECK(code_of([] { metric::F1({.num_classes = 3, .num_labels = 3}); }) == "RT-V43");
    CHECK(code_of([] { metric::Recall({.num_classes = 3, .top_k = 4}); }) == "RT-V43");
    CHECK(code_of([] { metric::Accuracy({.top_k = 2}); }) == "RT-V43");
    CHECK(code_of([] { metric::Auroc({.num_classes = 3, .average = Average::micro}); }) ==
          "RT-V43");
    CHECK(code_of([] { metric::Auroc({.thresholds = 1}); }) == "RT-V43");
    CHECK(code_of([] { metric::Auroc({.thresholds = 5, .threshold_values = {0.5}}); }) == "RT-V43");
    CHECK(code_of([] { metric::Auroc({.threshold_values = {0.5, 1.5}}); }) == "RT-V43");
    CHECK(code_of([] { metric::CalibrationError({.bins = 0}); }) == "RT-V43");
    CHECK(code_of([] { metric::MeanAbsoluteError({.squared = false}); }) == "RT-V43");
    CHECK(code_of([] { metric::R2Score({.adjusted = -1}); }) == "RT-V43");
}

TEST_CASE("Metric.fit_names_the_rank_whose_targets_are_wrong") {
    Trainer<> trainer({});
    std::string said;
    int size = 1;
    try {
        (void)trainer.fit([&](auto& worker) {
            size = worker.size();
            metric::Accuracy accuracy({.num_classes = 3});
            auto all = metric::Collection{}.add("top1", accuracy);
            const std::int64_t target = worker.rank() == worker.size() - 1 ? 3 : 0;
            all.update(at::rand({2, 3}), at::full({2}, target, at::kLong));
            worker.report({}, all);
        });
    } catch (const TrainingFailedError& error) {
        REQUIRE(error.worker_failures().contains(size - 1));
        said = error.worker_failures().at(size - 1);
        CHECK(error.worker_failures().size() == 1);
    }
    CHECK(contains(said, "metric \"top1\" (Accuracy): target number 0 is class 3"));
}
