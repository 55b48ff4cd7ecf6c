// SPDX-License-Identifier: Apache-2.0
// A training that is killed on some ranks and goes on on others; elastic_test.cpp runs it under
// mpirun.
//
//   elastic <bits|streamed-bits|streamed-csv-bits|streamed-filtered-bits|permuted|streamed|sharded>
//           <step to be killed behind, or 0> <storage path>
//   elastic <whole-weights|shared-weights|stepping-weights|written-weights>
//           <step to be killed in, or 0> <storage path>
//
// Each rank writes the rows of each step into rows/<epoch>-<step>-<rank>. With "bits" a model is
// trained, and a hash of all its bits and its optimizer's is printed. With "weights" it is trained
// by an engine, on rows that depend on nothing but the step.
#include "support/bits.hpp"
#include "support/training.hpp"

#ifdef RTRAIN_TEST_CSV
#include <rtrain/data/tables/arrow.hpp>
#endif

#include <csignal>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace rtrain;

namespace {

constexpr int epochs = 2;

/// What is left of a step that a killed run had begun is removed.
class RowLog {
public:
    explicit RowLog(std::filesystem::path storage) : directory_(std::move(storage) / "rows") {
        std::filesystem::create_directories(directory_);
    }
    void forget_after(int step) const {
        for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
            const std::string name = entry.path().filename().string();
            if (std::stoi(name.substr(name.find('-') + 1)) > step) {
                std::filesystem::remove(entry.path());
            }
        }
    }
    void write(int epoch, int step, int rank, const std::string& rows) const {
        std::ofstream(directory_ / (std::to_string(epoch) + "-" + std::to_string(step) + "-" +
                                    std::to_string(rank)))
            << rows;
    }

private:
    std::filesystem::path directory_;
};

/// The rows of another data set, in blocks of up to 40.
class InBlocks : public data::Dataset::BlockSource {
public:
    explicit InBlocks(data::Dataset rows) : rows_(std::move(rows)) {}
    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (std::int64_t row = 0; row < rows_.size(); row += length) {
            const std::int64_t rows = std::min(length, rows_.size() - row);
            blocks.push_back({.rows = rows, .bytes = rows * row_bytes});
        }
        return blocks;
    }
    [[nodiscard]] data::Batch read(std::int64_t block) const override {
        return rows_.rows(
            torch::arange(block * length, std::min((block + 1) * length, rows_.size())));
    }
    static constexpr std::int64_t row_bytes = 28 * 28 * 4 + 16;

private:
    static constexpr std::int64_t length = 40;
    data::Dataset rows_;
};

/// Of data::Streaming: windows of 5 rows, of which a lane has about 21.
constexpr std::int64_t memory_of(std::int64_t row_bytes) {
    return 2 * 24 * 5 * row_bytes;
}

#ifdef RTRAIN_TEST_CSV
constexpr std::int64_t pixels = 49;

/// Every 16th pixel, in four files of which each rank has a copy.
data::Dataset as_csv(const data::Batch& batch, const std::filesystem::path& storage) {
    const auto directory =
        storage / ("csv-" + std::to_string(launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0)));
    std::filesystem::create_directories(directory);
    const auto image =
        (batch["image"].flatten(1).slice(1, 0, 784, 784 / pixels) * 255).round().to(torch::kLong);
    for (std::int64_t part = 0; part < 4; ++part) {
        std::ofstream file(directory / (std::to_string(part) + ".csv"));
        file << "row,label";
        for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
            file << ",p" << pixel;
        }
        for (std::int64_t row = batch.size() * part / 4; row < batch.size() * (part + 1) / 4;
             ++row) {
            file << '\n' << row << ',' << batch["label"][row].item<std::int64_t>();
            for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
                file << ',' << image[row][pixel].item<std::int64_t>();
            }
        }
    }
    return data::read_csv(directory.string()).map_batches([](const data::Batch& read) {
        std::vector<torch::Tensor> values;
        for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
            values.push_back(read["p" + std::to_string(pixel)]);
        }
        const auto read_image = torch::stack(values, 1).to(torch::kFloat) / 255;
        return data::Batch({{"row", read["row"]},
                            {"image", read_image.repeat_interleave(784 / pixels, 1)},
                            {"label", read["label"]}});
    });
}
#endif

/// Dies as if by the kernel, on the last rank; mpirun then ends the others.
void maybe_die(const auto& worker, int step, int killed_behind) {
    if (step == killed_behind && worker.rank() == worker.size() - 1) {
        ::raise(SIGKILL);
    }
}

/// Adam, dropout and shuffled data, in steps of 8 micro-batches.
void train_bits(auto& worker, const RowLog& log, int killed_behind, std::int64_t memory_bytes) {
    worker.enable_reproducibility(5);
    auto model = worker.prepare(test::Net(0.3), {.reduction_order = ReductionOrder::micro_batches});
    auto optimizer =
        worker.prepare(torch::optim::Adam(model->parameters(), torch::optim::AdamOptions(1e-2)));
    int step = 0;
    const auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
    auto batches = worker.dataset_shard("train").batches(
        {.size = 8, .shuffle = true, .micro_batches = 8, .memory_bytes = memory_bytes});
    for (const int epoch : worker.epochs(epochs, state)) {
        if (worker.rank() == 0) {
            log.forget_after(step);
        }
        worker.barrier();
        std::string rows;
        for (auto& batch : batches) {
            rows += test::lines_of(batch["row"]);
            const auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]) /
                              static_cast<double>(batches.passes());
            if (!batches.step_ends()) {
                const auto guard = model.no_sync();
                loss.backward();
                continue;
            }
            loss.backward();
            optimizer.step();
            optimizer.zero_grad();
            log.write(epoch, ++step, worker.rank(), rows);
            rows.clear();
            worker.report({{"step", step}}, state);
            maybe_die(worker, step, killed_behind);
        }
    }
    if (worker.rank() == 0) {
        std::uint64_t hash = 0;
        for (const auto& parameter : model->parameters()) {
            hash = test::hash_of_bits(hash, parameter);
            const auto& adam = static_cast<const torch::optim::AdamParamState&>(
                *optimizer.state().at(parameter.unsafeGetTensorImpl()));
            hash = test::hash_of_bits(test::hash_of_bits(hash, adam.exp_avg()), adam.exp_avg_sq());
        }
        std::cout << "bits " << std::hex << hash << std::endl;
    }
}

/// Only goes through the rows.
void read_rows(auto& worker, const RowLog& log, int killed_behind) {
    int step = 0;
    const auto state = State{}.add("step", step);
    auto batches = worker.dataset_shard("train").batches(
        {.size = 7, .shuffle = true, .memory_bytes = memory_of(InBlocks::row_bytes)});
    for (const int epoch : worker.epochs(epochs, state)) {
        if (worker.rank() == 0) {
            log.forget_after(step);
        }
        worker.barrier();
        for (auto& batch : batches) {
            log.write(epoch, ++step, worker.rank(), test::lines_of(batch["row"]));
            worker.report({{"step", step}}, state);
            maybe_die(worker, step, killed_behind);
        }
    }
}

template <class D>
void run(const std::string& variant, int killed_behind, const std::string& storage) {
    const bool trains = variant.ends_with("bits");
    const bool filters = variant == "streamed-filtered-bits";
    const std::int64_t rows = filters ? 1000 : trains ? 500 : 509;
    const auto images = test::fashion_mnist(rows).rows(torch::arange(rows));
    data::Dataset dataset = data::from_tensors(
        {{"row", torch::arange(rows)}, {"image", images["image"]}, {"label", images["label"]}});
    std::int64_t row_bytes = InBlocks::row_bytes;
    if (variant == "streamed-csv-bits") {
#ifdef RTRAIN_TEST_CSV
        dataset = as_csv(dataset.take(rows), storage);
        row_bytes = 8 * (2 + pixels);
#endif
    } else if constexpr (std::same_as<D, data::Streaming>) {
        dataset = data::from_blocks(std::make_shared<InBlocks>(std::move(dataset)));
        if (filters) {
            dataset = dataset.filter(
                [](const data::Batch& batch) { return batch["row"].remainder(2) == 1; });
        }
    }
    Trainer<backend::Mpi, D> trainer(
        {.scaling = {.num_workers = launch::ranks().value_or(1), .threads_per_worker = 1},
         .run = {.name = "run", .storage_path = storage, .checkpoint = {.num_to_keep = 2}},
         .datasets = {{"train", std::move(dataset)}}});
    trainer.fit([&](auto& worker) {
        const RowLog log(storage);
        if (trains) {
            train_bits(worker, log, killed_behind, memory_of(row_bytes));
        } else {
            read_rows(worker, log, killed_behind);
        }
    });
}

/// 12 steps with Adam. A rank dies within backward, of SIGKILL or because it writes a parameter
/// that others read.
template <class Options>
void train_weights(auto& worker, const Options& options, int dies_in, bool by_writing) {
    torch::manual_seed(3);
    auto model = worker.prepare(test::Net(), options);
    auto optimizer = worker.prepare(torch::optim::Adam(model->parameters(), 1e-2));
    int step = 0;
    double loss = 0;
    const auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
    (void)worker.restore(state);
    while (step < 12) {
        torch::manual_seed(static_cast<std::uint64_t>(++step));
        constexpr std::int64_t rows = 12;
        const std::int64_t mine = rows / worker.size();
        const auto x = torch::randn({rows, 784}).narrow(0, worker.rank() * mine, mine);
        const auto y = torch::randint(10, {rows}).narrow(0, worker.rank() * mine, mine);
        optimizer.zero_grad();
        const auto logits = model(x);
        if (step == dies_in && worker.rank() == worker.size() - 1) {
            logits.register_hook([&](const torch::Tensor& /*gradient*/) {
                if (by_writing) {
                    const torch::NoGradGuard no_grad;
                    model->in->weight.add_(1);
                }
                ::raise(SIGKILL);
            });
        }
        const auto step_loss = torch::cross_entropy_loss(logits, y);
        step_loss.backward();
        optimizer.step();
        loss = worker.all_reduce(step_loss.template item<double>(), ReduceOp::mean);
        worker.report({{"step", step}, {"loss", loss}}, state);
    }
    if (worker.rank() == 0) {
        std::uint64_t hash = 0;
        for (const auto& parameter : model->parameters()) {
            hash = test::hash_of_bits(hash, parameter);
        }
        std::cout << "bits " << std::hex << hash << "\nloss " << loss << std::endl;
    }
}

void run_weights(const std::string& variant, int dies_in, const std::string& storage) {
    Trainer<backend::Mpi, data::Sharded, checkpoint::Sharded> trainer(
        {.scaling = {.num_workers = launch::ranks().value_or(1), .threads_per_worker = 1},
         .run = {.name = "run", .storage_path = storage, .checkpoint = {.num_to_keep = 2}}});
    trainer.fit([&](auto& worker) {
        if (variant == "whole-weights") {
            train_weights(worker, DataParallelOptions{}, dies_in, false);
        } else {
            train_weights(worker,
                          ShardedOptions{.slot_bytes = 16384,
                                         .step_in_backward = variant == "stepping-weights"},
                          dies_in, variant == "written-weights");
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        return 2;
    }
    const std::string variant = argv[1];
    if (variant.ends_with("-weights")) {
        run_weights(variant, std::stoi(argv[2]), argv[3]);
    } else if (variant == "sharded") {
        run<data::Sharded>(variant, std::stoi(argv[2]), argv[3]);
    } else if (variant.starts_with("streamed")) {
        run<data::Streaming>(variant, std::stoi(argv[2]), argv[3]);
    } else {
        run<data::Permuted>(variant, std::stoi(argv[2]), argv[3]);
    }
}
