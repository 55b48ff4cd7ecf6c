// SPDX-License-Identifier: Apache-2.0
// What run.py compares with Optuna and HpBandSter:
//   search cost SEARCHER TRIALS           CPU seconds of a search over 4 floats
//   search quality SEARCHER FUNCTION SEED TRIALS...   the best value after so many trials
//   search mlp                            for each line, a configuration in JSON, the value of
//   "mlp"
// What asha.py compares with syne-tune:
//   search asha MAX_T FACTOR              for each line, trial, epoch and loss, what Asha decides
#include "mlp.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tune/search/basic_variant.hpp>
#include <rtrain/tune/search/bohb.hpp>
#include <rtrain/tune/search/tpe.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <limits>
#include <numbers>
#include <set>
#include <string>
#include <variant>
#include <vector>

using namespace rtrain::tune;
using rtrain::Config;

namespace {

AnySearcher make_searcher(const std::string& name, std::uint64_t seed) {
    if (name == "tpe") {
        return Tpe({.seed = seed});
    }
    if (name == "bohb") {
        return Bohb({.seed = seed});
    }
    return BasicVariant({.seed = seed});
}

Space box(int dimensions, double low, double high) {
    std::vector<Space::Entry> entries;
    for (int i = 0; i < dimensions; ++i) {
        entries.emplace_back(std::string("x").append(std::to_string(i)), uniform(low, high));
    }
    return Space(entries);
}

Space space_of(const std::string& function) {
    if (function == "sphere5") {
        return box(5, -5, 5);
    }
    if (function == "rosenbrock5") {
        return box(5, -5, 10);
    }
    if (function == "rastrigin5") {
        return box(5, -5.12, 5.12);
    }
    if (function == "ackley10") {
        return box(10, -32.768, 32.768);
    }
    if (function == "hartmann6") {
        return box(6, 0, 1);
    }
    if (function == "branin") {
        return Space{{"x0", uniform(-5, 10)}, {"x1", uniform(0, 15)}};
    }
    if (function == "mlp") {
        return Space{
            {"lr", loguniform(1e-4, 1)},          {"momentum", uniform(0, 0.99)},
            {"decay", loguniform(1e-6, 1e-1)},    {"width", qlograndint(4, 128)},
            {"batch", choice({16, 32, 64, 128})}, {"activation", choice({"relu", "tanh"})}};
    }
    return Space{{"model", choice({Space{{"kind", "svm"},
                                         {"c", loguniform(1e-3, 1e3)},
                                         {"gamma", loguniform(1e-4, 10)}},
                                   Space{{"kind", "net"},
                                         {"layers", qrandint(1, 4)},
                                         {"width", qlograndint(8, 512)},
                                         {"lr", loguniform(1e-5, 1e-1)},
                                         {"act", choice({"relu", "tanh", "gelu"})}}})}};
}

double hartmann6(const std::vector<double>& x) {
    constexpr double weights[4] = {1.0, 1.2, 3.0, 3.2};
    constexpr double a[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                {0.05, 10, 17, 0.1, 8, 14},
                                {3, 3.5, 1.7, 10, 17, 8},
                                {17, 8, 0.05, 10, 0.1, 14}};
    constexpr double p[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
                                {2329, 4135, 8307, 3736, 1004, 9991},
                                {2348, 1451, 3522, 2883, 3047, 6650},
                                {4047, 8828, 8732, 5743, 1091, 381}};
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
        double exponent = 0;
        for (std::size_t j = 0; j < 6; ++j) {
            exponent -= a[i][j] * std::pow(x[j] - 1e-4 * p[i][j], 2);
        }
        sum -= weights[i] * std::exp(exponent);
    }
    return sum;
}

double conditional(const Config& model) {
    if (model.at("kind") == "svm") {
        return 0.3 + std::pow(std::log10(model.at("c").as_double()) - 1, 2) +
               std::pow(std::log10(model.at("gamma").as_double()) + 2, 2);
    }
    return 0.5 * std::pow(model.at("layers").to_number<double>() - 2, 2) +
           0.2 * std::pow(std::log2(model.at("width").to_number<double>()) - 6, 2) +
           std::pow(std::log10(model.at("lr").as_double()) + 3, 2) +
           (model.at("act") == "tanh" ? 0.0 : 0.4);
}

double value_of(const std::string& function, const Config& config) {
    constexpr double pi = std::numbers::pi;
    if (function == "conditional") {
        return conditional(config.at("model").as_object());
    }
    if (function == "mlp") {
        static const FashionMnistMlp mlp;
        return mlp.loss(config);
    }
    std::vector<double> x;
    for (const auto& entry : config) {
        x.push_back(entry.value().as_double());
    }
    const auto n = static_cast<double>(x.size());
    if (function == "hartmann6") {
        return hartmann6(x);
    }
    if (function == "branin") {
        return std::pow(x[1] - 5.1 / (4 * pi * pi) * x[0] * x[0] + 5 / pi * x[0] - 6, 2) +
               10 * (1 - 1 / (8 * pi)) * std::cos(x[0]) + 10;
    }
    double sum = 0;
    double cosines = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (function == "rosenbrock5") {
            sum += i + 1 < x.size()
                       ? 100 * std::pow(x[i + 1] - x[i] * x[i], 2) + std::pow(1 - x[i], 2)
                       : 0;
        } else if (function == "rastrigin5") {
            sum += 10 + x[i] * x[i] - 10 * std::cos(2 * pi * x[i]);
        } else {
            sum += x[i] * x[i];
            cosines += std::cos(2 * pi * x[i]);
        }
    }
    return function == "ackley10"
               ? 20 + std::numbers::e - 20 * std::exp(-0.2 * std::sqrt(sum / n)) -
                     std::exp(cosines / n)
               : sum;
}

void decide(double max_t, double factor) {
    Asha scheduler({.max_t = max_t, .reduction_factor = factor});
    scheduler.begin({"loss", "min"});
    std::set<std::string> known;
    std::string trial;
    std::int64_t epoch = 0;
    for (double loss = 0; std::cin >> trial >> epoch >> loss;) {
        if (known.insert(trial).second) {
            (void)scheduler.add(trial, {});
        }
        const auto verdict =
            scheduler.on_result({.trial = trial, .iteration = epoch, .metrics = {{"loss", loss}}});
        std::printf("%s\n", std::holds_alternative<GoOn>(verdict) ? "continue" : "stop");
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.at(0) == "mlp") {
        for (std::string line; std::getline(std::cin, line);) {
            std::printf("%.17g\n", value_of("mlp", rtrain::json::parse(line).as_object()));
            std::fflush(stdout);
        }
        return 0;
    }
    if (words.at(0) == "asha") {
        decide(std::stod(words.at(1)), std::stod(words.at(2)));
        return 0;
    }
    const bool cost = words.at(0) == "cost";
    const std::string function = cost ? "sphere4" : words.at(2);
    const Space space = cost ? box(4, -5, 5) : space_of(function);
    std::vector<int> counts;
    for (std::size_t i = cost ? 2 : 4; i < words.size(); ++i) {
        counts.push_back(std::stoi(words[i]));
    }
    AnySearcher searcher =
        make_searcher(words[1], cost ? 1 : static_cast<std::uint64_t>(std::stoi(words[3])));
    searcher.begin(space, {"loss", "min"}, -1);
    double best = std::numeric_limits<double>::infinity();
    const std::clock_t begin = std::clock();
    std::size_t shown = 0;
    for (int i = 0; i < counts.back(); ++i) {
        const std::string id = std::to_string(i);
        const auto config = std::get<Config>(searcher.ask(id));
        const double value = value_of(function, config);
        searcher.tell(id, value, TrialEnd::completed);
        best = std::min(best, value);
        if (i + 1 == counts[shown]) {
            ++shown;
            std::printf("%.17g ",
                        cost ? static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC : best);
        }
    }
    std::printf("\n");
    return 0;
}
