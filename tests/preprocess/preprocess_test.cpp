// SPDX-License-Identifier: Apache-2.0
// Preprocessors in one process: values, and what they do with what is missing, unknown, or wrong.
#include "support/thrown.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/preprocess.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/ATen.h>
#include <boost/json/value_to.hpp>
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using namespace rtrain;
using namespace rtrain::preprocess;
using data::Batch;
using test::code_of;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

data::Ragged text(const std::vector<std::string>& rows) {
    return rtrain::detail::Categories::as_text({rows.begin(), rows.end()});
}

/// A data set that gives rows of one batch.
class Rows : public data::Dataset::Source {
public:
    explicit Rows(Batch batch) : batch_(std::move(batch)) {}
    [[nodiscard]] std::int64_t size() const override { return batch_.size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        return data::select_rows(batch_, indices);
    }

private:
    Batch batch_;
};
data::Dataset dataset(const Batch& batch) {
    return data::Dataset(std::make_shared<const Rows>(batch));
}

const boost::json::object& scikit_learn() {
    static const auto all = json::parse(storage::read_file(std::filesystem::path(RTRAIN_TEST_DATA) /
                                                           "preprocess/scikit_learn.json"));
    return all.as_object();
}
at::Tensor table(const char* name) {
    std::vector<double> values;
    const auto& rows = scikit_learn().at(name).as_array();
    for (const auto& row : rows) {
        for (const auto& value : row.as_array()) {
            values.push_back(value.is_null() ? nan_value : value.to_number<double>());
        }
    }
    return at::tensor(values, at::kDouble).view({static_cast<std::int64_t>(rows.size()), -1});
}
at::Tensor integers(const char* name) {
    return at::tensor(boost::json::value_to<std::vector<std::int64_t>>(scikit_learn().at(name)),
                      at::kLong);
}
bool is_close(const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, 1e-12, 1e-12, /*equal_nan=*/true);
}

template <class P>
P fitted(P preprocessor, const Batch& batch) {
    preprocessor.fit(dataset(batch));
    return preprocessor;
}
template <class P>
Batch fit_transform(P preprocessor, const Batch& batch) {
    return fitted(std::move(preprocessor), batch).transform(batch);
}

} // namespace

TEST_CASE("Preprocess.values_equal_scikit_learn") {
    const Batch batch({{"x", table("x")}, {"level", integers("level")}},
                      {{"color", text(boost::json::value_to<std::vector<std::string>>(
                                     scikit_learn().at("color")))}});
    // Not the column of 1e6 +- 2: scikit-learn's mean itself is off by 6e-10 there, and its
    // x * scale + min by 1e-11.
    const auto others = at::tensor({0, 2, 3, 4, 5, 6}, at::kLong);
    const auto standard = fit_transform(StandardScaler({"x"}), batch)["x"];
    CHECK(is_close(standard.index_select(1, others), table("standard").index_select(1, others)));
    CHECK(at::allclose(standard, table("standard"), 0, 1e-9, /*equal_nan=*/true));
    CHECK(is_close(fit_transform(MinMaxScaler({"x"}), batch)["x"].index_select(1, others),
                   table("min_max").index_select(1, others)));
    CHECK(is_close(fit_transform(SimpleImputer({"x"}), batch)["x"], table("mean")));
    const Batch last({{"x", table("x").select(1, 6)}});
    CHECK(is_close(
        fit_transform(SimpleImputer({"x"}, {.strategy = Impute::most_frequent}), last)["x"],
        table("most_frequent").flatten()));
    const Batch ordinal = fit_transform(OrdinalEncoder({"level", "color"}), batch);
    CHECK(ordinal["level"].equal(integers("ordinal")));
    CHECK(ordinal["color"].equal(integers("color_ordinal")));
    CHECK(fit_transform(LabelEncoder("color"), batch)["color"].equal(integers("color_ordinal")));
    CHECK(fit_transform(OneHotEncoder({"color"}), batch)["color"].equal(
        table("one_hot").to(at::kByte)));
}

TEST_CASE("Preprocess.scalers_keep_types_and_write_where_they_are_told") {
    const Batch batch({{"f", at::tensor({-2.F, 0.F, 2.F})},
                       {"i", at::tensor({-3, -3, 3}, at::kInt)},
                       {"c", at::tensor({1.0, 1.0, 1.0})}});
    const Batch scaled = fit_transform(StandardScaler({"f", "i", "c"}, {"f", "j", "d"}), batch);
    CHECK((scaled["f"].scalar_type() == at::kFloat));
    CHECK(at::allclose(scaled["f"], at::tensor({-1.224745F, 0.F, 1.224745F})));
    CHECK(scaled["i"].equal(batch["i"])); // as it was
    CHECK(is_close(scaled["j"],
                   at::tensor({-0.70710678118654752, -0.70710678118654752, 1.4142135623730951})));
    CHECK(scaled["d"].equal(at::zeros({3}, at::kDouble)));
    CHECK(batch["f"][0].item<float>() == -2); // not in place
    const Batch ranged = fit_transform(MinMaxScaler({"f", "c"}), batch);
    CHECK(ranged["f"].equal(at::tensor({0.F, 0.5F, 1.F})));
    CHECK(ranged["c"].equal(at::zeros({3}, at::kDouble)));
}

TEST_CASE("Preprocess.constant_columns_become_zeros_and_close_values_are_told_apart") {
    // More rows than a piece and than a block, so that means are merged.
    constexpr std::int64_t rows = 70'000;
    for (const double value : {14.62, 0.1, 1e8 + 0.1, -1e-9}) {
        CAPTURE(value);
        const Batch batch({{"x", at::full({rows}, value, at::kDouble)}});
        CHECK(
            fit_transform(StandardScaler({"x"}), batch)["x"].equal(at::zeros({rows}, at::kDouble)));
        CHECK(fit_transform(SimpleImputer({"x"}), batch)["x"].equal(batch["x"]));
    }
    const auto signs = at::arange(rows, at::kDouble).remainder(2).mul(2).sub(1); // -1 and 1
    // Seconds since 1970, a tenth apart, and values that a tolerance would take for one.
    for (const auto& [middle, away] : {std::pair(1.7e9, 0.125), std::pair(1e8, 1.0 / 1024),
                                       std::pair(0.0, 1e-9), std::pair(1.0, 0x1p-40)}) {
        CAPTURE(middle);
        const Batch batch({{"x", signs.mul(away).add(middle)}});
        CHECK(is_close(fit_transform(StandardScaler({"x"}), batch)["x"], signs));
    }
}

TEST_CASE("Preprocess.rows_without_a_value") {
    const Batch batch({{"n", at::tensor({4, 100, 8, 8}, at::kLong)}},
                      {{"s", text({"b", "", "b", "a"})}},
                      {{"n", at::tensor({1, 0, 1, 1}).to(at::kBool)},
                       {"s", at::tensor({1, 0, 1, 1}).to(at::kBool)}});
    const auto scaled = fit_transform(MinMaxScaler({"n"}), batch);
    CHECK(is_close(scaled["n"], at::tensor({0.0, nan_value, 1.0, 1.0})));
    CHECK(!scaled.valid("n").defined());
    CHECK(code_of([&] { (void)fitted(OrdinalEncoder({"n"}), batch); }) == "RT-D57");
    CHECK(code_of([&] { (void)Concatenator({"n"}).transform(batch); }) == "RT-D57");

    const auto mean = fit_transform(SimpleImputer({"n"}), batch);
    CHECK(is_close(mean["n"], at::tensor({4.0, 20.0 / 3, 8.0, 8.0})));
    CHECK(!mean.valid("n").defined());
    const auto frequent =
        fit_transform(SimpleImputer({"n", "s"}, {.strategy = Impute::most_frequent}), batch);
    CHECK(frequent["n"].equal(at::tensor({4, 8, 8, 8}, at::kLong)));
    CHECK(frequent.ragged("s").text(1) == "b");
    CHECK(!frequent.valid("s").defined());
    const SimpleImputer constant({"s"}, {.strategy = Impute::constant, .fill_value = "none"});
    CHECK(constant.transform(batch).ragged("s").text(1) == "none");
    CHECK(constant.transform(batch).ragged("s").text(3) == "a");
}

TEST_CASE("Preprocess.categories_that_fit_has_not_seen") {
    const Batch seen({{"level", at::tensor({3, 1, 3}, at::kLong)}},
                     {{"color", text({"red", "blue", "red"})}});
    const Batch other({{"level", at::tensor({1, 2}, at::kLong)}},
                      {{"color", text({"green", "red"})}});
    const auto ordinal = fitted(OrdinalEncoder({"level", "color"}), seen);
    const auto numbers = ordinal.transform(other);
    CHECK(numbers["level"].equal(at::tensor({0, -1}, at::kLong)));
    CHECK(numbers.valid("level").equal(at::tensor({1, 0}).to(at::kBool)));
    CHECK(numbers["color"].equal(at::tensor({-1, 1}, at::kLong)));
    CHECK(!ordinal.transform(seen).valid("level").defined());
    CHECK((ordinal.categories("color") == std::vector<Value>{"blue", "red"}));
    CHECK(fitted(OneHotEncoder({"color"}), seen)
              .transform(other)["color"]
              .equal(at::tensor({0, 0, 0, 1}).view({2, 2}).to(at::kByte)));

    // The example of Ray's OneHotEncoder.
    const Batch colors(Batch::Columns{},
                       {{"color", text({"red", "green", "red", "red", "blue", "green"})}});
    const auto two = fitted(OneHotEncoder({"color"}, {.max_categories = {{"color", 2}}}), colors);
    CHECK((two.categories("color") == std::vector<Value>{"red", "green"}));
    CHECK(two.transform(colors)["color"].equal(
        at::tensor({1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1}).view({6, 2}).to(at::kByte)));
}

TEST_CASE("Preprocess.labels_come_back") {
    const Batch seen({{"n", at::tensor({2.5, -1.0, 2.5})}}, {{"y", text({"b", "a", "b"})}});
    const auto labels = fitted(LabelEncoder("y", "target"), seen);
    const auto numbers = labels.transform(seen);
    CHECK(numbers["target"].equal(at::tensor({1, 0, 1}, at::kLong)));
    CHECK(numbers.ragged("y").text(0) == "b");
    const auto back = labels.inverse_transform(Batch({{"target", at::tensor({0, 1}, at::kLong)}}));
    CHECK(back.ragged("y").text(0) == "a");
    CHECK(back.ragged("y").text(1) == "b");
    CHECK(code_of([&] {
              (void)labels.inverse_transform(Batch({{"target", at::tensor({2}, at::kLong)}}));
          }) == "RT-D56");
    const auto real = fitted(LabelEncoder("n"), seen);
    CHECK(real.inverse_transform(real.transform(seen))["n"].equal(seen["n"]));
}

TEST_CASE("Preprocess.concatenator_and_chain") {
    const Batch batch({{"a", at::tensor({1, 2}, at::kLong)},
                       {"y", at::tensor({0, 1}, at::kLong)},
                       {"b", at::arange(8, at::kFloat).view({2, 2, 2})}});
    const auto joined = Concatenator({"b", "a"}, {.output_column_name = "x"}).transform(batch);
    CHECK(joined["x"].equal(
        at::tensor({0.F, 1.F, 2.F, 3.F, 1.F, 4.F, 5.F, 6.F, 7.F, 2.F}).view({2, 5})));
    CHECK(code_of([&] { (void)joined["a"]; }) == "RT-D2");
    CHECK(joined.columns().size() == 2);
    const auto half = Concatenator({"a"}, {.dtype = at::kHalf}).transform(batch)["concat_out"];
    CHECK((half.scalar_type() == at::kHalf));

    const Batch table({{"age", at::tensor({20.0, nan_value, 40.0})}},
                      {{"color", text({"r", "g", "r"})}});
    Chain chain(SimpleImputer({"age"}), MinMaxScaler({"age"}), OneHotEncoder({"color"}),
                Concatenator({"age", "color"}, {.dtype = at::kFloat}));
    chain.fit(dataset(table));
    CHECK(chain.transform(table)["concat_out"].equal(
        at::tensor({0.F, 0.F, 1.F, 0.5F, 1.F, 0.F, 1.F, 0.F, 1.F}).view({3, 3})));
    CHECK(chain.get<1>().scale("age").item<double>() == 20);
}

TEST_CASE("Preprocess.many_blocks_are_as_one") {
    const std::int64_t rows = 2 * rtrain::detail::fit_block_rows + 777;
    const auto x = at::arange(rows, at::kDouble).mul(0.37).sin().add(1e3);
    const auto scaler = fitted(StandardScaler({"x"}), Batch({{"x", x}}));
    CHECK(is_close(scaler.mean("x"), x.mean()));
    CHECK(is_close(scaler.scale("x"), x.std(/*unbiased=*/false)));
    const auto encoder =
        fitted(OrdinalEncoder({"x"}), Batch({{"x", at::arange(rows, at::kLong).remainder(101)}}));
    CHECK(encoder.categories("x").size() == 101);
}

TEST_CASE("Preprocess.a_snapshot_keeps_what_was_fitted") {
    const Batch batch({{"x", at::randn({9, 2}, at::kDouble)}, {"n", at::arange(9).remainder(4)}},
                      {{"s", text({"a", "\xff", "", "a", "a", "b", "b", "c", "c"})}});
    const auto make = [] {
        return Chain(StandardScaler({"x"}), OrdinalEncoder({"s"}), OneHotEncoder({"n"}),
                     SimpleImputer({"s"}, {.strategy = Impute::most_frequent}));
    };
    auto chain = make();
    checkpoint::Snapshot empty;
    StateWriter early(empty, "chain");
    chain.save(early);
    chain.fit(dataset(batch));
    checkpoint::Snapshot snapshot;
    StateWriter out(snapshot, "chain");
    chain.save(out);

    auto loaded = make();
    loaded.load(StateReader(snapshot, "chain"));
    const auto expected = chain.transform(batch);
    const auto got = loaded.transform(batch);
    for (const char* const name : {"x", "s", "n"}) {
        CHECK(got[name].equal(expected[name]));
    }
    loaded.load(StateReader(empty, "chain")); // before fit()
    CHECK(code_of([&] { (void)loaded.transform(batch); }) == "RT-D55");

    StandardScaler scaler({"x"});
    CHECK(code_of([&] { scaler.load(StateReader(snapshot, "other")); }) == "RT-K3");
    StandardScaler of_y({"y"});
    CHECK(code_of([&] { of_y.load(StateReader(snapshot, "chain/0")); }) == "RT-K3");
}

TEST_CASE("Preprocess.wrong_columns_and_arguments") {
    const Batch batch({{"x", at::tensor({1.0, 2.0})},
                       {"wide", at::zeros({2, 3})},
                       {"z", at::zeros({2}, at::kComplexFloat)}},
                      {{"s", text({"a", "b"})},
                       {"list", data::Ragged{at::zeros({2}, at::kLong), at::arange(3)}}});
    const auto fit = [&](auto preprocessor) {
        return code_of([&] { preprocessor.fit(dataset(batch)); });
    };
    CHECK(code_of([&] { (void)StandardScaler({"x"}).transform(batch); }) == "RT-D55");
    CHECK(code_of([&] { (void)OrdinalEncoder({"x"}).transform(batch); }) == "RT-D55");
    CHECK(code_of([&] { (void)SimpleImputer({"x"}).transform(batch); }) == "RT-D55");
    CHECK(code_of([&] { (void)OneHotEncoder({"x"}).categories("x"); }) == "RT-D55");
    CHECK(fit(StandardScaler({"y"})) == "RT-D2");
    CHECK(fit(OrdinalEncoder({"y"})) == "RT-D2");
    CHECK(fit(StandardScaler({"s"})) == "RT-D56");
    CHECK(fit(StandardScaler({"z"})) == "RT-D56");
    CHECK(fit(OrdinalEncoder({"wide"})) == "RT-D56");
    CHECK(fit(LabelEncoder("list")) == "RT-D56");
    CHECK(code_of([&] { (void)Concatenator({"x", "s"}).transform(batch); }) == "RT-D56");
    CHECK(code_of([&] { (void)Concatenator({"x", "y"}).transform(batch); }) == "RT-D2");
    CHECK(test::contains(test::message_of([&] { (void)Concatenator({"s"}).transform(batch); }),
                         "column \"s\" is ragged"));

    const auto wide = fitted(StandardScaler({"wide"}), batch);
    CHECK(code_of([&] { (void)wide.transform(Batch({{"wide", at::zeros({2, 4})}})); }) == "RT-D56");
    const auto encoder = fitted(OrdinalEncoder({"s"}), batch);
    CHECK(code_of([&] { (void)encoder.transform(Batch({{"s", at::zeros({2})}})); }) == "RT-D56");
    const SimpleImputer imputer({"x"}, {.strategy = Impute::constant, .fill_value = "a"});
    CHECK(code_of([&] { (void)imputer.transform(batch); }) == "RT-D56");

    const auto fit_to = [](const at::Tensor& x) {
        return code_of([&] { (void)fitted(StandardScaler({"x"}), Batch({{"x", x}})); });
    };
    CHECK(fit_to(at::tensor({1.0, HUGE_VAL})) == "RT-D57");
    CHECK(fit_to(at::tensor({nan_value})) == "RT-D58");
    CHECK(fit_to(at::zeros({0})) == "RT-D58");

    CHECK(code_of([] { (void)StandardScaler(Names{}); }) == "RT-D59");
    CHECK(code_of([] { (void)StandardScaler({"a", "b"}, {"c"}); }) == "RT-D59");
    CHECK(code_of([] { (void)OneHotEncoder({"a"}, {.max_categories = {{"b", 1}}}); }) == "RT-D59");
    CHECK(code_of([] { (void)SimpleImputer({"a"}, {.strategy = Impute::constant}); }) == "RT-D59");
    CHECK(code_of([] { (void)SimpleImputer({"a"}, {.fill_value = "a"}); }) == "RT-D59");
}
