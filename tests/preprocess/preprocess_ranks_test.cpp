// SPDX-License-Identifier: Apache-2.0
// Preprocessors fitted by all ranks together.
#include "support/training.hpp"

#include <rtrain/data/batch/rows.hpp>
#include <rtrain/preprocess.hpp>

#include <doctest/doctest.h>

#include <set>

using namespace rtrain;
using test::code_of;

namespace {

/// Computed rows: numbers whose sum depends on the order of adding them, one missing in nine, and
/// text. Notes which rows this rank has read; throws when it is to read `bad_row`.
class Computed : public data::Dataset::Source {
public:
    Computed(std::int64_t rows, std::int64_t bad_row) : rows_(rows), bad_row_(bad_row) {}
    [[nodiscard]] std::int64_t size() const override { return rows_; }
    [[nodiscard]] data::Batch rows(const at::Tensor& indices) const override {
        if (indices.eq(bad_row_).any().item<bool>()) {
            throw DataError("RT-D15", "this row cannot be read");
        }
        read_ += indices.numel();
        const auto number = indices.to(at::kDouble);
        auto x = at::stack({number.mul(0.7).sin().mul(1e3), number.mul(0.3).cos().exp()}, 1);
        x = x.masked_fill(indices.remainder(9).eq(4).unsqueeze(1), std::nan(""));
        std::vector<preprocess::Value> words;
        for (std::int64_t i = 0; i < indices.numel(); ++i) {
            words.emplace_back("word " + std::to_string(indices[i].item<std::int64_t>() % 13));
        }
        return data::Batch({{"x", x}, {"n", indices.remainder(5)}},
                           {{"word", rtrain::detail::Categories::as_text(words)}});
    }
    [[nodiscard]] std::int64_t read() const { return read_; }

private:
    std::int64_t rows_;
    std::int64_t bad_row_;
    mutable std::int64_t read_ = 0;
};

auto make_chain() {
    namespace prep = preprocess;
    return prep::Chain(prep::StandardScaler({"x"}, {"scaled"}), prep::MinMaxScaler({"x"}),
                       prep::SimpleImputer({"x", "scaled"}), prep::OneHotEncoder({"word"}),
                       prep::OrdinalEncoder({"n"}),
                       prep::Concatenator({"x", "scaled", "word", "n"}));
}

} // namespace

TEST_CASE("Preprocess.a_tokenizer_learns_the_same_on_any_number_of_ranks") {
    const data::Dataset dataset{
        std::make_shared<const Computed>(3 * rtrain::detail::fit_block_rows + 1000, -1)};
    const auto make = [] {
        return preprocess::Tokenizer({"word"}, preprocess::BytePairOptions{.vocab_size = 270});
    };
    const auto text_of = [](const preprocess::Tokenizer& tokenizer) {
        checkpoint::Snapshot snapshot;
        StateWriter out(snapshot, "tokenizer");
        tokenizer.save(out);
        return rtrain::detail::to_string(snapshot.tensors.at("tokenizer/tokenizer_json"));
    };
    auto alone = make();
    alone.fit(dataset);
    CHECK(alone.encode("word 12").size() < 4);
    Trainer<> trainer({.datasets = {{"train", dataset}}});
    (void)trainer.fit([&](auto& worker) {
        auto together = make();
        worker.fit(together, "train");
        CHECK(text_of(together) == text_of(alone));
    });
}

TEST_CASE("Preprocess.fit_gives_the_bits_of_one_process_and_a_checkpoint_keeps_them") {
    const test::Directory directory("preprocess");
    const std::int64_t rows = 3 * rtrain::detail::fit_block_rows + 4321;
    const auto source = std::make_shared<const Computed>(rows, -1);
    const data::Dataset dataset{source};
    const auto some = dataset.rows(at::arange(0, rows, 997));
    auto alone = make_chain();
    alone.fit(dataset);
    const auto expected = alone.transform(some)["concat_out"];
    const std::int64_t read_alone = source->read();

    const auto train = [&](int fits) {
        Trainer<> trainer({.run = {.name = "fitted", .storage_path = directory.path()},
                           .datasets = {{"train", dataset}}});
        return trainer.fit([&](auto& worker) {
            auto chain = make_chain();
            const auto state = State{}.add("preprocessor", chain);
            if (!worker.restore(state)) {
                CHECK(fits == 1);
                const std::int64_t before = source->read();
                worker.fit(chain, "train");
                CHECK(code_of([&] { worker.fit(chain, "test"); }) == "RT-D1");
                // Each block is read by one rank, once for each of the five that are fitted.
                const double share = static_cast<double>(source->read() - before);
                CHECK(worker.all_reduce(share) == static_cast<double>(5 * rows));
                worker.report({{"fitted", 1}}, state);
            } else {
                CHECK(fits == 2);
            }
            CHECK(chain.transform(some)["concat_out"].equal(expected));
        });
    };
    CHECK(read_alone >= 5 * rows);
    (void)train(1);
    (void)train(2);
}

TEST_CASE("Preprocess.a_row_that_one_rank_cannot_read_is_an_error_on_all") {
    const data::Dataset dataset{std::make_shared<const Computed>(
        3 * rtrain::detail::fit_block_rows, rtrain::detail::fit_block_rows + 7)};
    Trainer<> trainer({.datasets = {{"train", dataset}}});
    std::string code;
    (void)trainer.fit([&](auto& worker) {
        auto chain = make_chain();
        code = code_of([&] { worker.fit(chain, "train"); });
        worker.barrier(); // all are still here
    });
    CHECK(code == "RT-D15");
}
