// SPDX-License-Identifier: Apache-2.0
// Networks that Python exported (script/export.py), trained on ranks: the losses are Python's, the
// names are those of its state_dict(), and what is not such a network is refused by name.
#include "model/sharded/models.hpp"
#include "support/capture.hpp"
#include "support/files.hpp"
#include "support/ranks.hpp"
#include "support/thrown.hpp"

#include <rtrain/model/batch_norm/convert_sync_batch_norm.hpp>
#include <rtrain/model/construct.hpp>
#include <rtrain/model/profile/flop_count.hpp>
#include <rtrain/model/profile/model_parts.hpp>
#include <rtrain/model/reproducibility.hpp>
#include <rtrain/model/sharded/plan/sharded_check.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/script.hpp>
#include <rtrain/trainer.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <boost/json.hpp>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace script_test {

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using test::Ranks;

namespace {

constexpr int steps = 50;
constexpr std::int64_t rows = 8;

/// A file of script/export.py.
std::string exported(const std::string& name) {
    const char* const directory = std::getenv("RTRAIN_SCRIPT_NETWORKS");
    REQUIRE(directory != nullptr);
    return directory + ("/" + name);
}

/// The batches that Python trains a network on.
checkpoint::safetensors::Tensors batches_of(const std::string& name) {
    const bool is_of_images = name == "traced" || name == "still" || name == "resnet";
    return checkpoint::read_torch_file(exported(is_of_images ? "image.data.pt" : "tokens.data.pt"));
}

std::vector<double> numbers(const boost::json::value& list) {
    return boost::json::value_to<std::vector<double>>(list);
}

/// The losses of training on this rank's part of each batch.
template <class Model, class Optimizer>
std::vector<double> train(Model& model, Optimizer& optimizer, const std::string& name,
                          const Ranks& ranks) {
    const auto data = batches_of(name);
    const std::int64_t each = rows / ranks.size();
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
        const auto part = [&](const char* what) {
            return data.at(std::to_string(step) + what).narrow(0, ranks.rank() * each, each);
        };
        optimizer.zero_grad();
        auto loss = torch::cross_entropy_loss(model(part(".x")), part(".y"));
        loss.backward();
        optimizer.step();
        losses.push_back(loss.template item<double>());
    }
    return losses;
}
template <class Model>
std::vector<double> train(Model& model, const std::string& name, const Ranks& ranks) {
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    return train(model, optimizer, name, ranks);
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(a[i] - b[i]));
    }
    return largest;
}

} // namespace

TEST_CASE("Script.trains_like_Python" * doctest::timeout(300)) {
    Ranks ranks;
    const auto alone = boost::json::parse(test::read(exported("alone.json")));
    for (const std::string name : {"scripted", "traced", "resnet", "bert"}) {
        CAPTURE(name);
        auto model = ranks.prepare(ScriptModel(exported(name + ".pt")).ptr());
        const auto losses = train(model, name, ranks);
        if (ranks.size() == 1) {
            CHECK(difference(losses, numbers(alone.at(name).at("losses"))) < 1e-6);
        }
        for (const at::Tensor& parameter : model->parameters()) {
            CHECK(ranks.agree(parameter)); // statistics are broadcast at the next pass
        }
        // Each name of the state_dict, tied ones twice.
        std::vector<std::string> names = model->named_parameters().keys();
        for (const std::string& buffer : model->named_buffers().keys()) {
            names.push_back(buffer);
        }
        auto python = boost::json::value_to<std::vector<std::string>>(alone.at(name).at("names"));
        std::sort(names.begin(), names.end());
        std::sort(python.begin(), python.end());
        CHECK(names == python);
    }
}

TEST_CASE("Script.trains_like_DDP" * doctest::timeout(300)) {
    Ranks ranks;
    REQUIRE(ranks.size() == 2);
    const auto ddp = boost::json::parse(test::read(exported("ddp.json")));
    for (const std::string name : {"scripted", "traced", "resnet", "bert"}) {
        CAPTURE(name);
        auto model = ranks.prepare(ScriptModel(exported(name + ".pt")).ptr());
        const auto losses = train(model, name, ranks);
        if (ranks.rank() == 0) {
            CHECK(difference(losses, numbers(ddp.at(name))) < 1e-5);
        }
    }
}

TEST_CASE("Script.memory_is_flat" * doctest::timeout(1800)) {
    Ranks ranks;
    auto network = ranks.prepare(ScriptModel(exported("dropout.pt")).ptr());
    auto kinds = ranks.prepare(ScriptModel<c10::IValue>(exported("kinds.pt")).ptr());
    torch::optim::SGD optimizer(network->parameters(), 0.01);
    const auto data = batches_of("dropout");
    const auto x = torch::ones({64, 3});
    const auto resident = [] {
        std::ifstream statm("/proc/self/statm");
        std::int64_t pages = 0;
        statm >> pages >> pages;
        return pages * 4096;
    };
    std::int64_t before = 0;
    for (int step = 0; step < 10000; ++step) {
        if (step == 2000) {
            before = resident();
        }
        const std::string at = std::to_string(step % steps);
        optimizer.zero_grad();
        torch::cross_entropy_loss(network(data.at(at + ".x")), data.at(at + ".y")).backward();
        optimizer.step();
        kinds->method<at::Tensor>("decode", x).sum().backward();
    }
    CHECK(resident() - before < (4 << 20));
}

TEST_CASE("Script.weights_do_not_depend_on_the_number_of_ranks" * doctest::timeout(300)) {
    Ranks ranks;
    for (const std::string name : {"scripted", "still", "resnet", "bert"}) {
        CAPTURE(name);
        auto alone = ScriptModel(exported(name + ".pt"));
        auto model = ranks.prepare(ScriptModel(exported(name + ".pt")).ptr());
        alone->eval();
        model->eval();
        torch::optim::SGD optimizer(alone->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
        const auto data = batches_of(name);
        for (int step = 0; step < steps; ++step) {
            const std::string at = std::to_string(step);
            optimizer.zero_grad();
            torch::cross_entropy_loss(alone(data.at(at + ".x")), data.at(at + ".y")).backward();
            optimizer.step();
        }
        (void)train(model, name, ranks);
        const auto expected = alone->parameters();
        const auto trained = model->parameters();
        REQUIRE(expected.size() == trained.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            CHECK((trained[i] - expected[i]).abs().max().item<double>() < 1e-10);
        }
    }
}

TEST_CASE("Script.sharded_weights_are_those_of_copies" * doctest::timeout(300)) {
    Ranks ranks;
    test::Directory directory("script-sharded");
    for (const std::string name : {"traced", "scripted", "bert"}) {
        auto copies = ranks.prepare(ScriptModel(exported(name + ".pt")).ptr());
        const auto losses = train(copies, name, ranks);
        for (const Share share : {Share::node, Share::none}) {
            CAPTURE(name);
            auto network = ScriptModel(exported(name + ".pt"));
            auto model = test::shard(ranks, network.ptr(), ShardedOptions{.share = share});
            auto optimizer = test::prepared(
                torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
                model);
            CHECK(difference(train(model, optimizer, name, ranks), losses) < 1e-9);
            // Each weight is part of a larger memory; it is saved with its own.
            const auto file = directory.path() / (name + ".pt");
            model.gathered([&](const auto& whole) {
                if (ranks.rank() == 0) {
                    save_script(whole, file);
                }
            });
            const auto saved = ScriptModel(file)->named_parameters();
            for (const auto& item : copies->named_parameters()) {
                CAPTURE(item.key());
                CHECK((saved[item.key()] - item.value()).abs().max().item<double>() < 1e-9);
            }
            ranks.mpi->barrier(); // before the file is written again
        }
    }
}

TEST_CASE("Script.weights_are_not_gathered_for_fused_kernels") {
    Ranks ranks;
    const auto model = ScriptModel(exported("traced.pt"));
    const auto code = [&](at::DeviceType device) {
        return code_of([&] { rtrain::detail::require_operators(*model, device); });
    };
    CHECK(code(at::kCUDA) == "RT-M154");
    CHECK(code(at::kCPU).empty());
    torch::jit::setTensorExprFuserEnabled(false);
    CHECK(code(at::kCUDA).empty());
    torch::jit::setTensorExprFuserEnabled(true);
}

TEST_CASE("Script.tied_parameters_stay_tied") {
    Ranks ranks;
    auto model = ScriptModel(exported("scripted.pt"));
    const auto parameters = model->named_parameters();
    CHECK(parameters["embedding.weight"].is_same(parameters["decoder.weight"]));
    test::Directory directory("script-tied");
    const auto file = directory.path() / ("tied" + std::to_string(ranks.rank()) + ".pt");
    save_script(model, file);
    const auto again = ScriptModel(file)->named_parameters();
    (void)ranks.agree(torch::ones({1})); // before rank 0 removes the directory
    CHECK(again["embedding.weight"].is_same(again["decoder.weight"]));
    CHECK(model->parameters().size() + 1 == parameters.size()); // as in Python
}

TEST_CASE("Script.two_models_of_one_file_share_nothing") {
    Ranks ranks;
    const auto alone = [&] {
        auto model = ranks.prepare(ScriptModel(exported("traced.pt")).ptr());
        return train(model, "traced", ranks);
    }();
    auto one = ranks.prepare(ScriptModel(exported("traced.pt")).ptr());
    auto two = ranks.prepare(ScriptModel(exported("traced.pt")).ptr());
    CHECK(train(one, "traced", ranks) == alone);
    CHECK(train(two, "traced", ranks) == alone);
    one->eval();
    CHECK(two->is_training());
    // Both in one pass.
    const auto x = batches_of("traced").at("0.x");
    one->zero_grad();
    two->zero_grad();
    (one(x) - 2 * two(x)).sum().backward();
    CHECK(ranks.agree(one->parameters()[0].grad()));
    CHECK(ranks.agree(two->parameters()[0].grad()));
}

TEST_CASE("Script.saved_programs_have_the_weights_of_now") {
    Ranks ranks;
    test::Directory directory("script-saved");
    const auto file = directory.path() / ("saved" + std::to_string(ranks.rank()) + ".pt");
    auto model = ranks.prepare(ScriptModel(exported("traced.pt")).ptr());
    (void)train(model, "traced", ranks);
    save_script(model, file);
    CHECK(model->is_training());
    auto same = ScriptModel(file);
    CHECK(same->is_training());
    const auto x = batches_of("traced").at("0.x");
    model->eval();
    same->eval();
    CHECK(model(x).equal(same(x)));
    model->train();
    save_script(model, file, {.evaluation = true});
    CHECK(model->is_training());
    auto evaluated = ScriptModel(file);
    CHECK_FALSE(evaluated->is_training());
    CHECK(evaluated->parameters()[0].requires_grad());
    std::ifstream stream(file, std::ios::binary);
    CHECK(ScriptModel(stream)->parameters()[0].equal(model->parameters()[0]));
    CHECK(code_of([&] { save_script(model, directory.path() / "none" / "a.pt"); }) == "RT-S3");
    // Weights of Python load by name, and weights of C++ go to Python.
    save_weights(directory.path() / (std::to_string(ranks.rank()) + ".safetensors"), model);
    auto loaded = ScriptModel(exported("traced.pt"));
    CHECK(load_weights(loaded, directory.path() / (std::to_string(ranks.rank()) + ".safetensors"))
              .missing.empty());
    CHECK(loaded->parameters()[0].equal(model->parameters()[0]));
    (void)ranks.agree(torch::ones({1})); // before rank 0 removes the directory
}

TEST_CASE("Script.values_of_each_type") {
    Ranks ranks;
    using Result = std::tuple<at::Tensor, std::map<std::string, at::Tensor>,
                              std::vector<std::int64_t>, std::string>;
    auto model = ranks.prepare(ScriptModel<Result>(exported("kinds.pt")).ptr());
    const auto x = torch::ones({2, 3});
    const std::map<std::string, at::Tensor> options{{"bias", torch::full({3}, 2.0)}};
    auto [y, twice, sizes, name] = model(x, options, std::vector<int>{7, 8, 9});
    CHECK(y.equal(torch::full({2, 3}, 3.0)));
    CHECK(twice.at("y").equal(torch::full({2, 3}, 6.0)));
    CHECK(sizes == std::vector<std::int64_t>{3, 7});
    CHECK(name == "a!");
    const auto other =
        model(x, options, std::vector<int>{1}, named("name", "b"), named("extra", x));
    CHECK(std::get<0>(other).equal(torch::full({2, 3}, 4.0)));
    CHECK(std::get<3>(other) == "b!");
    // The buffer that forward has assigned twice.
    CHECK(model->named_buffers()["mean"].equal(torch::full({3}, 0.75)));
    CHECK(model->method<at::Tensor>("encode", x).equal(torch::full({2}, 3.0)));
    auto any = ScriptModel<c10::IValue>(exported("kinds.pt"));
    CHECK(any(x, options, std::vector<int>{1}).toTupleRef().elements().size() == 4);
    int tensors = 0;
    auto all = any(x, options, std::vector<int>{1});
    rtrain::detail::each_tensor(all, [&](const at::Tensor& /*tensor*/) { ++tensors; });
    CHECK(tensors == 2);
}

TEST_CASE("Script.methods_run_like_forward") {
    Ranks ranks;
    auto model = ranks.prepare(ScriptModel<c10::IValue>(exported("kinds.pt")).ptr(),
                               {.find_unused_parameters = true, .autocast = at::kBFloat16});
    const auto x = torch::ones({2, 3}) * (ranks.rank() + 1);
    const auto code = model->method<at::Tensor>("encode", x);
    CHECK((code.scalar_type() == at::kFloat)); // autocast, and back
    code.sum().backward();                     // without RT-M61
    CHECK(ranks.agree(model->named_parameters()["weight"].grad()));
    CHECK_FALSE(model->named_parameters()["spare"].grad().defined());
    model->method<at::Tensor>("decode", x).sum().backward();
    CHECK(ranks.agree(model->named_parameters()["spare"].grad()));
    // Rank 0's buffers, as in a call of the handle.
    const std::map<std::string, at::Tensor> bias{{"bias", torch::zeros({3})}};
    (void)model(x, bias, std::vector<int>{1});
    (void)model->method<at::Tensor>("encode", x);
    CHECK(model->named_buffers()["mean"].equal(torch::full({3}, 0.5)));
    (void)model(x, bias, std::vector<int>{1});
    CHECK(model->named_buffers()["mean"].equal(torch::full({3}, 0.25 + 0.5 * (ranks.rank() + 1))));
}

TEST_CASE("Script.methods_join_ranks_with_fewer_batches" * doctest::timeout(60)) {
    Ranks ranks;
    const auto batches = [](int rank) { return 2 + rank; };
    auto model = ranks.prepare(ScriptModel<c10::IValue>(exported("kinds.pt")).ptr(),
                               {.find_unused_parameters = true});
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    int passes = 0;
    const auto step = [&] {
        optimizer.step();
        ++passes;
    };
    join(
        [&] {
            for (int batch = 0; batch < batches(ranks.rank()); ++batch) {
                optimizer.zero_grad();
                const auto x = torch::full({2, 3}, static_cast<double>(ranks.rank() + 1));
                model->method<at::Tensor>("encode", x.to(at::kFloat)).sum().backward();
                step();
            }
        },
        step, model);
    CHECK(passes == batches(ranks.size() - 1));
    double expected = 1;
    for (int pass = 0; pass < passes; ++pass) { // the mean over ranks that have a batch
        double sum = 0;
        int active = 0;
        for (int rank = 0; rank < ranks.size(); ++rank) {
            if (pass < batches(rank)) {
                sum += 2.0 * (rank + 1);
                ++active;
            }
        }
        expected -= 0.01 * sum / active;
    }
    for (int i = 0; i < 3; ++i) {
        CHECK(model->named_parameters()["weight"][i].item<double>() == doctest::Approx(expected));
    }
    CHECK(model->named_parameters()["spare"].equal(torch::ones({3})));
}

TEST_CASE("Script.dropout_draws_from_the_ranks_generator") {
    Ranks ranks;
    auto model = ranks.prepare(ScriptModel<c10::IValue>(exported("kinds.pt")).ptr());
    const auto x = torch::ones({100});
    torch::manual_seed(static_cast<std::uint64_t>(7 + ranks.rank()));
    const auto script = model->method<at::Tensor>("drop", x);
    torch::manual_seed(static_cast<std::uint64_t>(7 + ranks.rank()));
    CHECK(script.equal(torch::dropout(x, 0.5, true)));
    CHECK(ranks.agree(script) == (ranks.size() == 1));
    model->eval();
    CHECK(model->method<at::Tensor>("drop", x).equal(x));
    // Ranks that draw different masks keep equal weights.
    auto network = ranks.prepare(ScriptModel(exported("dropout.pt")).ptr());
    (void)train(network, "dropout", ranks);
    for (const at::Tensor& parameter : network->parameters()) {
        CHECK(ranks.agree(parameter));
    }
}

TEST_CASE("Script.options_apply") {
    Ranks ranks;
    const auto data = batches_of("traced");
    const auto x = data.at("0.x").narrow(0, ranks.rank(), 2).to(torch::kFloat);
    const auto y = data.at("0.y").narrow(0, ranks.rank(), 2);
    const std::vector<Hook> hooks{hook::None{}, hook::BFloat16{}, hook::Float16{},
                                  hook::PowerSgd{.rank = 2, .start_iteration = 0}};
    for (const Hook& chosen : hooks) {
        auto network = ScriptModel(exported("traced.pt"));
        network->to(torch::kFloat);
        network->named_parameters()["first.bias"].set_requires_grad(false);
        auto model = ranks.prepare(network.ptr(), {.hook = chosen});
        const auto loss = [&] { return torch::cross_entropy_loss(model(x), y); };
        {
            const auto alone = model.no_sync();
            loss().backward();
        }
        loss().backward();
        std::vector<at::Tensor> norms;
        for (const at::Tensor& parameter : model->parameters()) {
            if (parameter.grad().defined()) {
                norms.push_back(parameter.grad().norm());
            }
        }
        const double norm = torch::stack(norms).norm().item<double>();
        CHECK(model.clip_grad_norm_(0.1) == doctest::Approx(norm).epsilon(1e-5));
        CHECK(norm > 0.1);
        const auto parameters = model->named_parameters();
        CHECK_FALSE(parameters["first.bias"].grad().defined());
        double clipped = 0;
        for (const auto& item : parameters) {
            if (item.value().grad().defined()) {
                CHECK(ranks.agree(item.value().grad()));
                clipped += item.value().grad().square().sum().item<double>();
            }
        }
        CHECK(std::sqrt(clipped) == doctest::Approx(0.1).epsilon(1e-3));
        // Freezing also works between steps.
        parameters["first.bias"].set_requires_grad(true);
        parameters["last.0.bias"].set_requires_grad(false);
        model->zero_grad();
        loss().backward();
        CHECK(ranks.agree(parameters["first.bias"].grad()));
        CHECK_FALSE(parameters["last.0.bias"].grad().defined());
    }
}

TEST_CASE("Script.is_described_and_counted_like_any_model") {
    Ranks ranks;
    auto network = ScriptModel(exported("bert.pt"));
    network->named_parameters()["pooler.bias"].set_requires_grad(false);
    auto model = ranks.prepare(network.ptr());
    const auto parts = rtrain::detail::parts_of(*model);
    REQUIRE(parts.size() > 10);
    CHECK(parts[0].type == "Bert");
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : model->parameters()) { // tied weights once
        elements += parameter.numel();
    }
    CHECK(parts[0].parameters == elements);
    CHECK(parts[0].trainable == elements - 8);
    CHECK(std::any_of(parts.begin(), parts.end(), [](const auto& part) {
        return part.name == "words" && part.type == "Embedding" && part.parameters == 20 * 8;
    }));
    // Two products of 2 x 3 and 3 elements in forward, and their gradients.
    auto kinds = ranks.prepare(ScriptModel<c10::IValue>(exported("bits.pt")).ptr());
    rtrain::detail::FlopCount count;
    kinds(torch::ones({2, 16})).toTensor().sum().backward();
    ProcessContext::current().clock.add_step();
    const auto flops = count.of_first_step();
    REQUIRE(flops);
    CHECK(*flops == 2 * (2 * 16 * 64) * 2 + 2 * (2 * 64 * 20) * 3);
}

TEST_CASE("Script.is_constructed_on_one_rank") {
    Ranks ranks;
    std::shared_ptr<ScriptModelImpl<at::Tensor>> network;
    rtrain::detail::construct_once(ranks.any(), {}, [&] {
        network = ScriptModel(exported("scripted.pt")).ptr();
        return network;
    });
    auto model = ranks.prepare(network);
    CHECK(model->parameters().size() > 10);
    for (const at::Tensor& parameter : model->parameters()) {
        CHECK(parameter.abs().sum().item<double>() >= 0);
        CHECK(ranks.agree(parameter));
    }
    const auto x = batches_of("scripted").at("0.x");
    CHECK(torch::isfinite(model(x)).all().item<bool>());
}

TEST_CASE("Script.wrong_calls") {
    Ranks ranks;
    auto model = ScriptModel<c10::IValue>(exported("kinds.pt"));
    const auto x = torch::ones({2, 3});
    const auto text = message_of([&] { (void)model(x, 3); });
    CHECK(contains(text, "[RT-M86]"));
    CHECK(contains(text, "'options'"));
    CHECK(contains(text, "Dict(str, Tensor) options, int[] sizes, str name=\"a\""));
    CHECK(code_of([&] { (void)model(x); }) == "RT-M86");
    CHECK(code_of([&] { (void)model(x, x, x, x, x, x); }) == "RT-M86");
    CHECK(code_of([&] { (void)model->method<at::Tensor>("encode", named("z", x)); }) == "RT-M86");
    const auto method = message_of([&] { (void)model->method("encod", x); });
    CHECK(contains(method, "did you mean \"encode\"?"));
    CHECK(contains(method, "[RT-M88]"));
    const auto failed = message_of([&] { (void)model->method("fail", x); });
    CHECK(contains(failed, "[RT-M89]"));
    CHECK(contains(failed, "export.py:"));
    CHECK(contains(failed, "in fail: return x @ torch.ones(7)  # does not fit"));
    CHECK(contains(failed, "size mismatch"));
    CHECK(failed.size() < 400);
    const auto raised = message_of([&] { (void)model->method("refuse", x); });
    CHECK(contains(raised, "rows are not welcome"));
    CHECK(test::count_of(raised, "raise ValueError") == 1);
    const auto device = message_of([&] {
        (void)model(x.to(at::kMeta), std::map<std::string, at::Tensor>{{"bias", x}},
                    std::vector<int>{1});
    });
    CHECK(contains(device, "the parameters are on cpu, but an argument is on meta"));
    const auto result = message_of([&] { ScriptModel<at::Tensor>{exported("kinds.pt")}; });
    CHECK(contains(result, "std::tuple<torch::Tensor, std::map<std::string, torch::Tensor>, "
                           "std::vector<std::int64_t>, std::string>"));
    CHECK(contains(result, "[RT-M87]"));
    CHECK(code_of([&] { (void)model->method<std::string>("encode", x); }) == "RT-M87");
}

TEST_CASE("Script.other_files_are_named") {
    Ranks ranks;
    const std::vector<std::tuple<std::string, std::string, std::string>> files{
        {"none.pt", "RT-M80", "does not exist"},
        {"weights.pt", "RT-M81", "torch.save"},
        {"old.pt", "RT-M81", "before PyTorch 1.6"},
        {"weights.safetensors", "RT-M81", "safetensors"},
        {"program.pt2", "RT-M81", "cannot be trained from C++"},
        {"pickle.pkl", "RT-M81", "pickle"},
        {"empty.pt", "RT-M81", "empty"},
        {"text.pt", "RT-M81", "unknown kind"},
        {"truncated.pt", "RT-M81", "truncated"},
        {".", "RT-M81", "directory"},
        {"operator.pt", "RT-M83",
         "torchvision::nms, which this program does not have; link libtorch"},
        {"newer.pt", "RT-M84", "newer PyTorch"},
        {"frozen.pt", "RT-M85", "constants"},
        {"inference.pt", "RT-M85", "constants"},
        {"partly_frozen.pt", "RT-M85", "constants"},
        {"quantized.pt", "RT-M91", "quantized"},
    };
    for (const auto& [name, code, part] : files) {
        CAPTURE(name);
        const auto text = message_of([&file = name] { (void)ScriptModel<>(exported(file)); });
        CHECK_MESSAGE(contains(text, "[" + code + "]"), text);
        CHECK_MESSAGE(contains(text, part), text);
        if (code == "RT-M81" && name != ".") {
            std::ifstream stream(exported(name), std::ios::binary);
            CHECK(code_of([&] { (void)ScriptModel<>(stream); }) == code);
        }
    }
    std::ostringstream weights;
    torch::save(torch::nn::Linear(2, 2), weights);
    std::istringstream in(weights.str());
    CHECK(code_of([&] { (void)ScriptModel<>(in); }) == "RT-M82");
}

TEST_CASE("Script.exceptions_are_shown_once_with_the_rank" * doctest::timeout(60)) {
    test::Directory directory("script-failure");
    Trainer<> trainer({.run = {.name = "run", .storage_path = directory.path()}});
    int last = 0;
    try {
        trainer.fit([&](auto& worker) {
            last = worker.size() - 1;
            auto model = worker.prepare(ScriptModel<c10::IValue>(exported("kinds.pt")));
            const bool is_wrong = worker.rank() == last;
            (void)model->method("refuse", is_wrong ? torch::ones({2, 3}) : torch::ones({3}));
            worker.barrier();
        });
        FAIL("nothing was thrown");
    } catch (const TrainingFailedError& error) {
        const std::string text = error.worker_failures().at(last);
        CHECK(contains(error.what(), text));
        CHECK(contains(error.what(), "rank " + std::to_string(last)));
        CHECK(test::count_of(error.what(), "export.py:") == 1);
        CHECK(test::count_of(error.what(), "raise ValueError") == 1);
        CHECK(contains(text, "[RT-M89]"));
    }
}

/// A run of two epochs of six steps, which script/resume_test.py kills in a step, and resumes.
TEST_CASE("Script.run" * doctest::skip()) {
    const std::filesystem::path storage = std::getenv("RTRAIN_SCRIPT_RUN");
    const int killed_in = launch::env_int("RTRAIN_KILL_STEP").value_or(0);
    std::vector<at::Tensor> tokens;
    std::vector<at::Tensor> labels;
    const auto data = batches_of("dropout");
    for (int i = 0; i < 6; ++i) {
        tokens.push_back(data.at(std::to_string(i) + ".x"));
        labels.push_back(data.at(std::to_string(i) + ".y"));
    }
    Trainer<> trainer(
        {.run = {.name = "run", .storage_path = storage},
         .datasets = {{"train", data::from_tensors({{"tokens", torch::cat(tokens)},
                                                    {"label", torch::cat(labels)}})}}});
    (void)trainer.fit([&](auto& worker) {
        worker.enable_reproducibility(1);
        auto model = worker.prepare(ScriptModel(exported("dropout.pt")));
        torch::optim::AdamW optimizer(model->parameters(), 1e-2);
        int step = 0;
        auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
        auto batches =
            worker.dataset_shard("train").batches({.size = rows / worker.size(), .shuffle = true});
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["tokens"]), batch["label"]).backward();
                if (++step == killed_in && worker.rank() == worker.size() - 1) {
                    std::raise(SIGKILL);
                }
                optimizer.step();
                worker.report({{"step", step}}, state);
            }
        }
        CHECK(step == 12);
        if (worker.rank() == 0) {
            save_script(model, storage / "tuned.pt");
            save_weights(storage / "tuned.safetensors", model);
        }
        worker.barrier();
    });
}

/// Writes what resume_test.py has changed in Python, as seen here.
TEST_CASE("Script.load" * doctest::skip()) {
    Ranks ranks;
    auto model = ScriptModel(exported("dropout.pt"));
    const std::filesystem::path storage = std::getenv("RTRAIN_SCRIPT_RUN");
    for (const char* const file : {"python.safetensors", "python.pt"}) {
        const auto parameters = model->named_parameters();
        {
            const torch::NoGradGuard no_grad;
            parameters["decoder.weight"].zero_();
        }
        (void)load_weights(model, storage / file);
        CHECK(parameters["embedding.weight"].is_same(parameters["decoder.weight"]));
        CHECK(parameters["embedding.weight"].eq(0.25).all().item<bool>());
    }
}

TEST_CASE("Script.batch_norms_are_not_converted") {
    Ranks ranks;
    auto model = ScriptModel(exported("scripted.pt"));
    CHECK(code_of([&] { convert_sync_batch_norm(*model); }) == "RT-M93");
    auto without = ScriptModel<c10::IValue>(exported("kinds.pt"));
    convert_sync_batch_norm(*without);
}

TEST_CASE("Script.reproducible_steps_have_the_same_bits") {
    Ranks ranks;
    rtrain::detail::make_reproducible(1);
    auto model = ScriptModel(exported("bits.pt"));
    const auto x = torch::randn({8, 16});
    std::vector<at::Tensor> first;
    for (int pass = 0; pass < 4; ++pass) { // libtorch would optimize from the second pass on
        model->zero_grad();
        torch::manual_seed(2);
        model(x).pow(2).mean().backward();
        std::vector<at::Tensor> gradients;
        for (const at::Tensor& parameter : model->parameters()) {
            gradients.push_back(parameter.grad().clone());
        }
        first = pass == 0 ? gradients : first;
        for (std::size_t i = 0; i < first.size(); ++i) {
            CHECK(gradients[i].equal(first[i]));
        }
    }
    at::globalContext().setDeterministicAlgorithms(false, false);
    torch::jit::setGraphExecutorOptimize(true);
}

TEST_CASE("Script.modes") {
    Ranks ranks;
    const auto said = [](const std::string& name) {
        test::Stderr written;
        (void)ScriptModel<>(exported(name));
        return written.text();
    };
    CHECK(contains(said("traced_eval.pt"), "RT-M90"));
    CHECK(contains(said("traced_train.pt"), "was traced in training mode, which dropout keeps"));
    CHECK(contains(said("traced_attention.pt"), "which scaled_dot_product_attention keeps"));
    CHECK_FALSE(contains(said("scripted.pt"), "RT-M90"));
    auto model = ScriptModel(exported("scripted.pt"));
    CHECK(model->name() == "Net");
    model->eval();
    CHECK_FALSE(model->script().is_training());
    CHECK_FALSE(model->script().attr("norm").toModule().is_training());
    model->named_children()["norm"]->train();
    CHECK(model->script().attr("norm").toModule().is_training());
    CHECK_FALSE(model->script().is_training());
    model->to(torch::kFloat);
    const auto decoder = model->script().attr("decoder").toModule();
    CHECK(decoder.attr("weight").toTensor().is_floating_point());
    CHECK((decoder.attr("weight").toTensor().scalar_type() == torch::kFloat));
}

} // namespace script_test
