// SPDX-License-Identifier: Apache-2.0
// Backward passes that are not one straight walk: passes within passes, gradients that never come,
// sparse ones, exceptions; and what happens to a model between passes.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using test::Ranks;

namespace {

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

/// Activation checkpointing as users write it: forward keeps nothing, backward runs forward again
/// and calls backward() on what it gives.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
    struct Piece : torch::CustomClassHolder {
        Forward forward;
    };
    static torch::Tensor forward(torch::autograd::AutogradContext* context,
                                 const torch::Tensor& input, const Forward& piece) {
        auto kept = c10::make_intrusive<Piece>();
        kept->forward = piece;
        context->saved_data["piece"] = c10::IValue::make_capsule(kept);
        context->save_for_backward({input});
        const torch::NoGradGuard no_grad;
        return piece(input);
    }
    static std::vector<torch::Tensor> backward(torch::autograd::AutogradContext* context,
                                               const std::vector<torch::Tensor>& gradients) {
        const auto piece =
            c10::static_intrusive_pointer_cast<Piece>(context->saved_data["piece"].toCapsule());
        auto input = context->get_saved_variables()[0].detach().requires_grad_();
        {
            const torch::AutoGradMode enable(true);
            piece->forward(input).backward(gradients[0]);
        }
        return {input.grad(), torch::Tensor()};
    }
};

/// Four layers, of which those from `begin` to `end` - 1 are checkpointed, each alone or as one
/// piece; `spare` is used in no pass.
struct DeepImpl : torch::nn::Module {
    explicit DeepImpl(bool with_spare = false) {
        torch::manual_seed(5);
        for (int i = 0; i < 4; ++i) {
            layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(6, 6)));
        }
        if (with_spare) {
            spare = register_module("spare", torch::nn::Linear(6, 6));
        }
    }
    torch::Tensor forward(torch::Tensor x, int begin = 0, int end = 0, bool each = false) {
        x = x.clone().requires_grad_();
        for (int i = 0; i < 4; ++i) {
            const int last = each || i < begin || i >= end ? i : end - 1;
            const Forward piece = [this, i, last](torch::Tensor y) {
                for (int k = i; k <= last; ++k) {
                    y = torch::tanh(layers[static_cast<std::size_t>(k)](y));
                }
                return y;
            };
            x = i >= begin && i < end ? Checkpointed::apply(x, piece) : piece(x);
            i = last;
        }
        return x;
    }
    std::vector<torch::nn::Linear> layers;
    torch::nn::Linear spare{nullptr};
};

torch::Tensor rows_of(int rank) {
    return torch::linspace(-1, 1, 30).view({5, 6}) * (rank + 1);
}

/// What each rank's pass gives alone, averaged.
std::vector<torch::Tensor> mean_gradients(torch::nn::Module& module, int size,
                                          const std::function<void(int)>& pass) {
    std::vector<torch::Tensor> means;
    for (int rank = 0; rank < size; ++rank) {
        module.zero_grad();
        pass(rank);
        std::size_t i = 0;
        for (const auto& parameter : module.parameters()) {
            const auto mine = (parameter.grad().defined() ? parameter.grad().to_dense()
                                                          : torch::zeros_like(parameter)) /
                              size;
            rank == 0 ? means.push_back(mine.clone()) : void(means[i] += mine);
            ++i;
        }
    }
    module.zero_grad();
    return means;
}

void check_gradients(const torch::nn::Module& module, const std::vector<torch::Tensor>& expected) {
    std::size_t i = 0;
    for (const auto& item : module.named_parameters()) {
        CAPTURE(item.key());
        const auto& gradient = item.value().grad();
        CHECK(torch::allclose(gradient.defined() ? gradient.to_dense()
                                                 : torch::zeros_like(item.value()),
                              expected[i++], 1e-5, 1e-6));
    }
}

} // namespace

TEST_CASE("Backward.within_a_backward") {
    Ranks ranks;
    struct Case {
        int begin, end;
        bool each;
    };
    for (const bool with_spare : {false, true}) {
        auto module = std::make_shared<DeepImpl>(with_spare);
        const auto expected = mean_gradients(*module, ranks.size(), [&](int rank) {
            module->forward(rows_of(rank)).square().sum().backward();
        });
        for (const bool find_unused : {false, true}) {
            if (with_spare && !find_unused) {
                continue;
            }
            for (const std::int64_t bytes : {1, 1 << 20}) {
                auto model = ranks.prepare(module, {.bucket_bytes = bytes,
                                                    .first_bucket_bytes = bytes,
                                                    .find_unused_parameters = find_unused});
                for (const auto& [begin, end, each] :
                     {Case{0, 0, false}, Case{1, 3, false}, Case{1, 3, true}, Case{0, 4, false},
                      Case{0, 4, true}, Case{0, 2, false}, Case{2, 4, false}}) {
                    CAPTURE(begin);
                    CAPTURE(end);
                    CAPTURE(each);
                    CAPTURE(find_unused);
                    module->zero_grad();
                    model(rows_of(ranks.rank()), begin, end, each).square().sum().backward();
                    check_gradients(*module, expected);
                }
            }
        }
    }
}

TEST_CASE("Backward.unused_parameters_are_found_behind_checkpointed_pieces") {
    auto mpi = std::make_shared<backend::Mpi>();
    mpi->start({});
    Outcome mine;
    if (mpi->size() > 1) {
        auto module = std::make_shared<DeepImpl>(true);
        DataParallel<DeepImpl, backend::Mpi> model(mpi, module, {});
        const auto message = test::message_of(
            [&] { model(rows_of(mpi->rank()), 0, 4, true).square().sum().backward(); });
        CHECK(test::contains(message, "RT-M3"));
        CHECK(test::contains(message, "\"spare.weight\""));
        mine = Failure{.message = message};
    }
    (void)mpi->finish(mine);
}

namespace {

/// Multiplies, and has no gradient for the factor: an undefined tensor.
struct WithoutGradient : torch::autograd::Function<WithoutGradient> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context,
                                 const torch::Tensor& input, const torch::Tensor& factor) {
        context->save_for_backward({factor});
        return input * factor;
    }
    static std::vector<torch::Tensor> backward(torch::autograd::AutogradContext* context,
                                               const std::vector<torch::Tensor>& gradients) {
        return {gradients[0] * context->get_saved_variables()[0], torch::Tensor()};
    }
};

struct HalfDeafImpl : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 6));
    torch::Tensor deaf = register_parameter("deaf", torch::full({6}, 2.0));
    torch::Tensor forward(const torch::Tensor& x) { return WithoutGradient::apply(layer(x), deaf); }
};

} // namespace

TEST_CASE("Backward.without_a_defined_gradient") {
    Ranks ranks;
    for (const bool find_unused : {false, true}) {
        auto module = std::make_shared<HalfDeafImpl>();
        const auto expected = mean_gradients(*module, ranks.size(), [&](int rank) {
            module->forward(rows_of(rank)).sum().backward();
        });
        auto model = ranks.prepare(module, {.find_unused_parameters = find_unused});
        for (int step = 0; step < 2; ++step) {
            module->zero_grad();
            model(rows_of(ranks.rank())).sum().backward();
            check_gradients(*module, expected);
            CHECK(module->deaf.grad().defined() == (ranks.size() > 1 && !find_unused));
        }
        // Of the input alone: nothing is accumulated, so nothing is averaged.
        const auto input = rows_of(ranks.rank()).requires_grad_();
        const auto before = module->layer->weight.grad().clone();
        (void)torch::autograd::grad({model(input).sum()}, {input, module->deaf}, {}, false, false,
                                    true);
        CHECK(module->layer->weight.grad().equal(before));
    }
}

TEST_CASE("Backward.keeps_sparse_gradients_sparse") {
    Ranks ranks;
    const int size = ranks.size();
    struct WordsImpl : torch::nn::Module {
        torch::nn::Embedding words = register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 3).sparse(true)));
        torch::nn::EmbeddingBag bag = register_module(
            "bag", torch::nn::EmbeddingBag(
                       torch::nn::EmbeddingBagOptions(20, 3).sparse(true).mode(torch::kSum)));
        torch::nn::Linear out = register_module("out", torch::nn::Linear(3, 2));
        torch::Tensor forward(const torch::Tensor& x, bool with_bag) {
            auto y = words(x).sum(0, true);
            return out(with_bag ? y + bag(x.view({1, -1})) : y);
        }
    };
    const auto words_of = [](int rank) { // ranks have unequally many, and 7 in common
        return torch::cat({torch::tensor({7, 7}), torch::arange(rank + 1)});
    };
    auto module = std::make_shared<WordsImpl>();
    const auto expected = mean_gradients(
        *module, size, [&](int rank) { module->forward(words_of(rank), true).sum().backward(); });
    const auto without_bag = mean_gradients(*module, size, [&](int rank) {
        module->forward(words_of(rank), rank == size - 1).sum().backward();
    });
    for (const bool find_unused : {false, true}) {
        auto model = ranks.prepare(module, {.find_unused_parameters = find_unused});
        for (int step = 0; step < 2; ++step) {
            module->zero_grad();
            model(words_of(ranks.rank()), true).sum().backward();
            check_gradients(*module, expected);
            for (const auto& parameter : {module->words->weight, module->bag->weight}) {
                CHECK(parameter.grad().is_sparse());
                CHECK((size == 1 || parameter.grad().is_coalesced()));
                CHECK(ranks.agree(parameter.grad().to_dense()));
            }
        }
        if (find_unused) {
            module->zero_grad();
            model(words_of(ranks.rank()), ranks.rank() == size - 1).sum().backward();
            check_gradients(*module, without_bag);
        }
        // Gradients of several passes, the last one averaged, then clipped as in torch.
        module->zero_grad();
        {
            const auto guard = model.no_sync();
            model(words_of(ranks.rank()), true).sum().backward();
        }
        model(words_of(ranks.rank()), true).sum().backward();
        auto twice = expected;
        double squares = 0;
        for (auto& gradient : twice) {
            gradient = gradient * 2;
            squares += gradient.square().sum().item<double>();
        }
        check_gradients(*module, twice);
        CHECK(model.clip_grad_norm_(1e-3) == doctest::Approx(std::sqrt(squares)));
        for (auto& gradient : twice) {
            gradient *= 1e-3 / std::sqrt(squares);
        }
        check_gradients(*module, twice);
        CHECK(module->words->weight.grad().is_sparse());
    }
}

TEST_CASE("Backward.of_frozen_and_unfrozen_parameters") {
    Ranks ranks;
    const auto freeze = [](torch::nn::Module& module, bool frozen) {
        for (auto& parameter : module.parameters()) {
            parameter.set_requires_grad(!frozen);
        }
    };
    for (const bool view : {true, false}) {
        for (const std::int64_t bytes : {1, 300, 1 << 20}) {
            auto module = std::make_shared<DeepImpl>();
            freeze(*module->layers[0], true); // also at prepare()
            freeze(*module->layers[1], true);
            auto model = ranks.prepare(module, {.bucket_bytes = bytes,
                                                .first_bucket_bytes = bytes,
                                                .gradient_as_bucket_view = view});
            const auto step = [&] {
                for (int again = 0; again < 2; ++again) {
                    const auto expected = mean_gradients(*module, ranks.size(), [&](int rank) {
                        auto alone = std::make_shared<DeepImpl>();
                        std::size_t i = 0;
                        for (auto& parameter : alone->parameters()) {
                            parameter.set_requires_grad(module->parameters()[i++].requires_grad());
                        }
                        alone->forward(rows_of(rank)).square().sum().backward();
                        i = 0;
                        for (auto& parameter : module->parameters()) {
                            parameter.mutable_grad() = alone->parameters()[i++].grad();
                        }
                    });
                    model(rows_of(ranks.rank())).square().sum().backward();
                    check_gradients(*module, expected);
                }
            };
            step();
            freeze(*module->layers[1], false); // gradual unfreezing
            step();
            freeze(*module->layers[3], true);
            step();
            freeze(*module->layers[0], false);
            freeze(*module->layers[3], false);
            step();
            // A gradient that a frozen parameter has stays as it is.
            model(rows_of(ranks.rank())).square().sum().backward();
            const auto& weight = module->layers[2]->weight;
            const auto kept = weight.grad().clone();
            freeze(*module->layers[2], true);
            for (int again = 0; again < 2; ++again) {
                model(rows_of(ranks.rank())).square().sum().backward();
                CHECK(weight.grad().equal(kept));
            }
        }
    }
}

TEST_CASE("Backward.behind_several_forwards_with_batch_norm") {
    Ranks ranks;
    struct NormedImpl : torch::nn::Module {
        torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 6));
        torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
        torch::Tensor forward(const torch::Tensor& x) { return norm(layer(x)); }
    };
    auto module = std::make_shared<NormedImpl>();
    auto model = ranks.prepare(module);
    const auto weights = torch::linspace(0, 1, 30).view({5, 6});
    const auto first = model(rows_of(ranks.rank()) + 0.3 * weights);
    const auto second = model(rows_of(ranks.rank()) - weights);
    {
        const torch::NoGradGuard no_grad;
        (void)model(rows_of(0));
    }
    ((first - second) * weights).sum().backward();
    CHECK(ranks.agree(module->layer->weight.grad()));
    CHECK(module->layer->weight.grad().abs().sum().item<double>() > 0);
}

namespace {

/// Throws in backward when it is told to.
struct Fragile : torch::autograd::Function<Fragile> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context,
                                 const torch::Tensor& input, bool breaks) {
        context->saved_data["breaks"] = breaks;
        return input.clone();
    }
    static std::vector<torch::Tensor> backward(torch::autograd::AutogradContext* context,
                                               const std::vector<torch::Tensor>& gradients) {
        if (context->saved_data["breaks"].toBool()) {
            throw std::runtime_error("broken");
        }
        return {gradients[0], torch::Tensor()};
    }
};

struct FragileImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 6));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(6, 6));
    torch::Tensor forward(const torch::Tensor& x, bool breaks) {
        return out(Fragile::apply(in(x), breaks));
    }
};

} // namespace

TEST_CASE("Backward.goes_on_after_an_exception_on_all_ranks") {
    Ranks ranks;
    auto module = std::make_shared<FragileImpl>();
    const auto expected = mean_gradients(*module, ranks.size(), [&](int rank) {
        module->forward(rows_of(rank), false).square().sum().backward();
    });
    auto model = ranks.prepare(module, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    for (const bool breaks : {true, false, true, true, false}) {
        module->zero_grad();
        try {
            model(rows_of(ranks.rank()), breaks).square().sum().backward();
            check_gradients(*module, expected);
        } catch (const std::runtime_error& error) {
            CHECK(breaks);
            CHECK(test::contains(error.what(), "broken"));
        }
    }
}
