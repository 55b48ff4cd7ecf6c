// SPDX-License-Identifier: Apache-2.0
// A small, real training whose outcome depends on nothing but its options: 2 ranks, Adam, shuffled
// data, dropout, checkpoints in the middle of epochs. chaos.py lets faults happen to it and
// compares what it leaves with what an undisturbed run leaves.
//
//   workload STORAGE [--NAME VALUE]...        started alone, or under mpirun
//
// Each rank r ends with final-r.bin in the run's directory: weights, optimizer, and a hash of the
// samples in the order in which all ranks have read them. Prints "RESULT ..." or "ERROR ...".
#include "fault.hpp"

#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>

namespace {

using rtrain::process::DeferredCopy;

constexpr const char* images = "/usr/share/datasets/fashion-mnist";

struct Options {
    std::string storage;
    std::string policy = "sharded";       ///< or sync, async, late: async, copied by the next step
    std::string engine = "data_parallel"; ///< see Train
    long ranks = 2;
    long epochs = 2;
    long rows = 1024;      ///< a multiple of `batch`
    long batch = 32;       ///< rows of a step, of all ranks together
    long every = 4;        ///< steps between reports with a checkpoint
    long max_failures = 3; ///< -1: without limit; of start-ups, too
    long backoff_ms = 500; ///< see FailureConfig::backoff_s
    long fit_again = 0;    ///< 1: a second, short run follows in the same program

    Options(int argc, char** argv) {
        storage = argc > 1 ? argv[1] : "";
        bool understood = argc > 1 && argc % 2 == 0;
        for (int i = 2; understood && i < argc; i += 2) {
            understood = set(argv[i], argv[i + 1]);
        }
        if (!understood || rows % batch != 0 || batch % ranks != 0) {
            std::cerr << "usage: workload STORAGE [--NAME VALUE]...\n";
            std::exit(2);
        }
    }

private:
    bool set(const std::string& name, const char* value) {
        const std::map<std::string, long*> numbers = {{"--ranks", &ranks},
                                                      {"--epochs", &epochs},
                                                      {"--rows", &rows},
                                                      {"--batch", &batch},
                                                      {"--every", &every},
                                                      {"--max-failures", &max_failures},
                                                      {"--backoff-ms", &backoff_ms},
                                                      {"--fit-again", &fit_again}};
        if (const auto found = numbers.find(name); found != numbers.end()) {
            *found->second = std::stol(value);
            return true;
        }
        if (name == "--engine") {
            engine = value;
            return engine == "data_parallel" || engine == "sharded" || engine == "stepping" ||
                   engine == "gathering";
        }
        policy = name == "--policy" ? value : policy;
        return name == "--policy" &&
               (policy == "sync" || policy == "async" || policy == "sharded" || policy == "late");
    }
};

/// Fashion-MNIST's first test images where they are installed, else noise with labels that can be
/// learned; each row with its number.
rtrain::data::Dataset read_rows(long count) {
    const auto id = torch::arange(count);
    if (std::filesystem::exists(images)) {
        auto rows = rtrain::data::fashion_mnist(images, rtrain::data::Split::test).rows(id);
        return rtrain::data::from_tensors(
            {{"image", rows["image"].flatten(1)}, {"label", rows["label"]}, {"id", id}});
    }
    auto random = torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1});
    const auto image = torch::randn({count, 784}, random);
    const auto label = image.slice(1, 0, 10).argmax(1);
    return rtrain::data::from_tensors({{"image", image}, {"label", label}, {"id", id}});
}

class Rows : public rtrain::data::Dataset::Source {
public:
    explicit Rows(long count) : count_(count) {
        chaos::point("open");
        rows_ = std::make_unique<rtrain::data::Dataset>(read_rows(count));
    }
    [[nodiscard]] std::int64_t size() const override { return count_; }
    [[nodiscard]] rtrain::data::Batch rows(const at::Tensor& indices) const override {
        chaos::point("load");
        return rows_->rows(indices);
    }

private:
    long count_;
    std::unique_ptr<rtrain::data::Dataset> rows_;
};

struct NetImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 32));
    torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.1));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 10));

    torch::Tensor forward(const torch::Tensor& image) {
        const auto hidden = torch::relu(in(image));
        chaos::point("forward");
        pass_in_backward(hidden, "all_reduce"); // the gradients of `out` are on their way
        const auto logits = out(drop(hidden));
        pass_in_backward(logits, "backward");
        return logits;
    }
    static void pass_in_backward(const torch::Tensor& tensor, const char* phase) {
        tensor.register_hook([phase](const torch::Tensor& /*gradient*/) { chaos::point(phase); });
    }
};
TORCH_MODULE(Net);

/// Which samples the ranks have read: each exactly once an epoch, or the run fails.
class SampleLog {
public:
    explicit SampleLog(long rows) : seen_(torch::zeros({rows}, torch::kByte)) {}

    void add(const std::vector<at::Tensor>& ids_of_ranks) {
        for (const at::Tensor& ids : ids_of_ranks) {
            for (std::int64_t i = 0; i < ids.numel(); ++i) {
                const auto id = ids[i].item<std::int64_t>();
                seen_[id] += 1;
                hash_ = (hash_ ^ static_cast<std::uint64_t>(id)) * 0x100000001b3; // FNV-1a
            }
        }
    }
    void end_epoch() {
        if (!seen_.eq(1).all().item<bool>()) {
            throw std::logic_error("WRONG: a sample was not read exactly once in this epoch");
        }
        seen_.zero_();
    }
    [[nodiscard]] std::uint64_t hash() const { return hash_; }

    void save(rtrain::StateWriter& out) const {
        chaos::point("snapshot");
        out.tensor("seen", seen_);
        out.value("hash", hash_);
    }
    void load(const rtrain::StateReader& in) {
        seen_ = in.tensor("seen").clone();
        hash_ = in.value("hash").to_number<std::uint64_t>();
    }

private:
    at::Tensor seen_;
    std::uint64_t hash_ = 0xcbf29ce484222325;
};

struct Train {
    Options options;

    void operator()(auto& worker) const {
        if (options.engine == "gathering") { // each rank its part of the weights
            train(worker, rtrain::ShardedOptions{.share = rtrain::Share::none});
        } else if (options.engine == "stepping") {
            train(worker, rtrain::ShardedOptions{.step_in_backward = true});
        } else if (options.engine == "sharded") {
            train(worker, rtrain::ShardedOptions{.data_parallel = {.check_gradients = true}});
        } else {
            train(worker, rtrain::DataParallelOptions{.check_gradients = true});
        }
    }

private:
    void train(auto& worker, const auto& engine) const {
        chaos::begin_attempt();
        chaos::set_step(0);
        worker.enable_reproducibility(7);
        auto model = worker.prepare(Net{}, engine);
        torch::manual_seed(static_cast<std::uint64_t>(worker.rank())); // of dropout
        auto optimizer = worker.prepare(torch::optim::Adam(model->parameters(), 1e-3));
        SampleLog samples(options.rows);
        long step = 0;
        std::optional<DeferredCopy::Held> held; // from a report on, until a step
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("samples", samples)
                         .add("step", step);
        auto batches = worker.dataset_shard("train").batches(
            {.size = options.batch / worker.size(), .shuffle = true});
        for (const int epoch : worker.epochs(static_cast<int>(options.epochs), state)) {
            std::cout << "TRAINING " << worker.rank() << " epoch " << epoch << " step " << step
                      << std::endl;
            chaos::set_step(step);
            for (auto& batch : batches) {
                chaos::set_step(++step);
                samples.add(worker.all_gather(batch["id"]));
                optimizer.zero_grad();
                auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                if (chaos::next_loss_is_nan()) {
                    loss = loss * std::numeric_limits<float>::quiet_NaN();
                }
                loss.backward();
                chaos::point("step");
                optimizer.step();
                held.reset();
                rest(worker.rank(), step);
                report(worker, step, worker.all_reduce(loss.template item<double>()), state);
                hold(held);
            }
            samples.end_epoch();
            held.reset();
            worker.report({{"epoch", epoch}}, state);
            hold(held);
        }
        held.reset();
        chaos::point("end");
        leave(worker, *model.ptr(), optimizer, samples, step);
    }

    void hold(std::optional<DeferredCopy::Held>& held) const {
        if (options.policy == "late") {
            held.emplace();
        }
    }

    /// Tells the harness which step this is, and waits as long as it wants: so many ms before step
    /// `until`, and from there on.
    void rest(int rank, long step) const {
        std::ifstream pace(options.storage + "/pace");
        int before = 0;
        long until = 0;
        int then = 0;
        if (pace >> before >> until >> then) {
            if (rank == 0) {
                std::ofstream(options.storage + "/step") << step << std::endl;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(step < until ? before : then));
        }
    }

    void report(auto& worker, long step, double loss, const rtrain::State& state) const {
        const rtrain::Config metrics{{"step", step}, {"loss", loss}};
        if (step % options.every == 0) {
            chaos::point("metrics");
            worker.report(metrics, state);
            chaos::point("committed");
        } else if (step % 2 == 0) {
            worker.report(metrics);
        }
    }

    static void leave(auto& worker, const torch::nn::Module& model, torch::optim::Adam& optimizer,
                      const SampleLog& samples, long step) {
        std::string bytes = std::to_string(step) + " " + std::to_string(samples.hash()) + "\n";
        const auto add = [&bytes](const at::Tensor& tensor) {
            const auto plain = tensor.detach().clone(at::MemoryFormat::Contiguous);
            bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
        };
        for (const auto& parameter : model.parameters()) {
            add(parameter);
        }
        for (const auto& stepped : optimizer.param_groups()[0].params()) { // or this rank's part
            const auto& adam = static_cast<const torch::optim::AdamParamState&>(
                *optimizer.state().at(stepped.unsafeGetTensorImpl()));
            add(adam.exp_avg());
            add(adam.exp_avg_sq());
            bytes += std::to_string(adam.step());
        }
        const auto name = "final-" + std::to_string(worker.rank()) + ".bin";
        rtrain::storage::replace_file(worker.run_path() / name, bytes);
    }
};

template <class Checkpoint>
rtrain::Result train(const Options& options, const std::string& name, long epochs) {
    const auto limit = static_cast<int>(options.max_failures);
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, Checkpoint> trainer{{
        .scaling = {.num_workers =
                        rtrain::launch::ranks().value_or(static_cast<int>(options.ranks)),
                    .threads_per_worker = 1},
        .run = {.name = name,
                .storage_path = options.storage,
                .failure = {.max_failures = limit,
                            .controller_failure_limit = limit,
                            .backoff_s = static_cast<double>(options.backoff_ms) / 1e3,
                            .hang = {.start_s = 20, .idle_s = 3, .busy_s = 6, .stopped_s = 1.5}},
                .checkpoint = {.num_to_keep = 3, .late_copies = true}},
        .datasets = {{"train", rtrain::data::lazy([rows = options.rows] {
                          return rtrain::data::Dataset(std::make_shared<Rows>(rows));
                      })}},
    }};
    Options mine = options;
    mine.epochs = epochs;
    return trainer.fit(Train{mine});
}

template <class Checkpoint>
void run(const Options& options) {
    const auto result = train<Checkpoint>(options, "run", options.epochs);
    std::cout << "RESULT " << result.metrics_history.size() << std::endl;
    if (options.fit_again != 0) {
        const auto next = train<Checkpoint>(options, "next", 1);
        std::cout << "NEXT " << next.metrics_history.size() << std::endl;
    }
}

} // namespace

int main(int argc, char** argv) {
    const Options options(argc, argv);
    chaos::watch_storage(options.storage);
    chaos::point("start");
    try {
        if (options.policy == "sharded") {
            run<rtrain::checkpoint::Sharded>(options);
        } else if (options.policy == "sync") {
            run<rtrain::checkpoint::Sync>(options);
        } else if (options.policy == "late") {
            run<rtrain::checkpoint::AsyncSharded>(options);
        } else {
            run<rtrain::checkpoint::Async>(options);
        }
    } catch (const rtrain::Error& error) {
        std::cout << "ERROR " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
