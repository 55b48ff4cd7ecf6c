// SPDX-License-Identifier: Apache-2.0
// Rows in, tensors out: data sets of rtrain, and the loops that are their limit.
//
//   ingest READER PATH [--batch 256] [--threads 0] [--epochs 1] [--memory-mb 256] [--shuffle 1]
//                      [--from 0] [--batches -1]
//
// READER: csv, parquet, json, tar, mds and jpeg (a directory of images, resized to 64 x 64) by
// data::Streaming; sharded-csv, sharded-parquet and sharded-json by data::Sharded; arrow-csv and
// arrow-parquet, Arrow alone, and turbojpeg, that alone; files, each text file of a directory a
// row; memory and index-select, rows that are in memory (PATH: their number); train-memory and
// train-csv, a small network on such rows.
//
// Prints a line of JSON for each epoch: rows, seconds, seconds to the first batch, the
// bytes of their columns, and by how many bytes the resident set has grown at most.
#include <rtrain/data/images/images.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/readers/json.hpp>
#include <rtrain/data/readers/mds.hpp>
#include <rtrain/data/readers/text.hpp>
#include <rtrain/data/readers/webdataset.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/tables/arrow.hpp>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <arrow/csv/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <turbojpeg.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace data = rtrain::data;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The largest resident set so far, in bytes.
std::int64_t peak_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmHWM:")) {
            return std::stoll(line.substr(6)) * 1024;
        }
    }
    throw std::runtime_error("/proc/self/status does not say VmHWM");
}

/// What the command line says behind the path, with what it does not.
class Arguments {
public:
    Arguments(int count, char** words) {
        for (int i = 0; i + 1 < count; i += 2) {
            values_.at(std::string(words[i])) = std::stoll(words[i + 1]);
        }
    }
    [[nodiscard]] std::int64_t operator[](const char* name) const { return values_.at(name); }

private:
    std::map<std::string, std::int64_t> values_{
        {"--batch", 256}, {"--threads", 0}, {"--epochs", 1},  {"--memory-mb", 256},
        {"--shuffle", 1}, {"--from", 0},    {"--batches", -1}};
};

/// Counts what a loop has got, and prints it.
class Epoch {
public:
    void take(const data::Batch& batch) {
        if (rows_ == 0) {
            first_s_ = since(start_);
        }
        rows_ += batch.size();
        for (const auto& [name, column] : batch.columns()) {
            bytes_ += static_cast<std::int64_t>(column.nbytes());
        }
        for (const auto& [name, column] : batch.ragged_columns()) {
            bytes_ += static_cast<std::int64_t>(column.values.nbytes());
        }
    }
    void take_rows(std::int64_t rows) { rows_ += rows; }
    void print(std::int64_t idle_bytes) const {
        std::printf("{\"rows\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"first_s\": %.6f, "
                    "\"grown\": %lld}\n",
                    static_cast<long long>(rows_), static_cast<long long>(bytes_), since(start_),
                    first_s_, static_cast<long long>(peak_bytes() - idle_bytes));
        std::fflush(stdout);
    }

private:
    Clock::time_point start_ = Clock::now();
    double first_s_ = 0;
    std::int64_t rows_ = 0;
    std::int64_t bytes_ = 0;
};

data::BatchOptions options_of(const Arguments& arguments) {
    return {.size = arguments["--batch"],
            .shuffle = arguments["--shuffle"] != 0,
            .threads = static_cast<int>(arguments["--threads"]),
            .memory_bytes = arguments["--memory-mb"] << 20};
}

/// A loop over a data set, as a training has it on one rank.
template <class D>
void loop(const data::Dataset& dataset, const Arguments& arguments, std::int64_t idle) {
    const auto position = std::make_shared<data::Position>();
    data::Batches batches({.dataset = dataset, .policy = D{}}, options_of(arguments), position);
    for (std::int64_t i = 0; i < arguments["--epochs"]; ++i) {
        Epoch epoch;
        if (arguments["--from"] > 0) { // per cent of an epoch
            const std::int64_t rows = dataset.size() / 100 * arguments["--from"];
            position->samples = rows - rows % arguments["--batch"];
        }
        std::int64_t left = arguments["--batches"];
        for (const auto& batch : batches) {
            epoch.take(batch);
            if (--left == 0) {
                break;
            }
        }
        epoch.print(idle);
    }
}

data::Batch::Columns numbers(std::int64_t rows) {
    return {{"x", at::randn({rows, 64})}, {"label", at::randint(10, {rows}, at::kLong)}};
}

/// What a loop over rows in memory does at least.
void index_select(const Arguments& arguments, std::int64_t rows, std::int64_t idle) {
    const auto columns = numbers(rows);
    const std::int64_t size = arguments["--batch"];
    for (std::int64_t i = 0; i < arguments["--epochs"]; ++i) {
        Epoch epoch;
        const at::Tensor order = at::randperm(rows, at::kLong);
        for (std::int64_t row = 0; row < rows; row += size) {
            const at::Tensor indices = order.slice(0, row, std::min(rows, row + size));
            data::Batch::Columns selected;
            for (const auto& [name, column] : columns) {
                selected.emplace_back(name, column.index_select(0, indices));
            }
            epoch.take(data::Batch(std::move(selected)));
        }
        epoch.print(idle);
    }
}

template <class T>
T value_of(arrow::Result<T> result) {
    if (!result.ok()) {
        throw std::runtime_error(result.status().ToString());
    }
    return std::move(result).ValueUnsafe();
}

void require(const arrow::Status& status) {
    if (!status.ok()) {
        throw std::runtime_error(status.ToString());
    }
}

/// Arrow's decoders, one thread, without tensors.
void arrow_csv(const std::string& path, std::int64_t idle) {
    Epoch epoch;
    auto read = arrow::csv::ReadOptions::Defaults();
    read.use_threads = false;
    read.block_size = 1 << 18;
    const auto file = value_of(arrow::io::ReadableFile::Open(path));
    const auto reader = value_of(arrow::csv::StreamingReader::Make(
        arrow::io::default_io_context(), file, read, arrow::csv::ParseOptions::Defaults(),
        arrow::csv::ConvertOptions::Defaults()));
    for (std::shared_ptr<arrow::RecordBatch> batch; require(reader->ReadNext(&batch)), batch;) {
        epoch.take_rows(batch->num_rows());
    }
    epoch.print(idle);
}

void arrow_parquet(const std::string& path, std::int64_t idle) {
    Epoch epoch;
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    require(builder.OpenFile(path));
    std::unique_ptr<parquet::arrow::FileReader> reader;
    require(builder.properties(properties)->Build(&reader));
    for (int group = 0; group < reader->num_row_groups(); ++group) {
        std::shared_ptr<arrow::Table> table;
        require(reader->RowGroup(group)->ReadTable(&table));
        epoch.take_rows(table->num_rows());
    }
    epoch.print(idle);
}

constexpr data::ImageSize image_size{64, 64};

/// Files of a directory of classes through libjpeg-turbo, each by the factor of its DCT that comes
/// nearest to the size from above, as read_images() asks for it.
void turbojpeg(const std::string& path, std::int64_t idle) {
    Epoch epoch;
    const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
    int factors = 0;
    const tjscalingfactor* const factor = tjGetScalingFactors(&factors);
    std::vector<unsigned char> pixels;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
        if (!entry.is_regular_file()) {
            continue;
        }
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes(std::istreambuf_iterator<char>(file), {});
        const auto* const begin = reinterpret_cast<const unsigned char*>(bytes.data());
        int width = 0, height = 0, subsampling = 0, colors = 0;
        if (tjDecompressHeader3(decoder.get(), begin, bytes.size(), &width, &height, &subsampling,
                                &colors) != 0) {
            throw std::runtime_error(entry.path().string() + ": " + tjGetErrorStr());
        }
        std::pair<int, int> scaled(width, height);
        for (int i = 0; i < factors; ++i) {
            const std::pair<int, int> next(TJSCALED(width, factor[i]), TJSCALED(height, factor[i]));
            if (next.first >= image_size.width && next.second >= image_size.height &&
                next < scaled) {
                scaled = next;
            }
        }
        pixels.resize(3 * static_cast<std::size_t>(scaled.first) *
                      static_cast<std::size_t>(scaled.second));
        if (tjDecompress2(decoder.get(), begin, bytes.size(), pixels.data(), scaled.first, 0,
                          scaled.second, TJPF_RGB, 0) != 0) {
            throw std::runtime_error(entry.path().string() + ": " + tjGetErrorStr());
        }
        epoch.take_rows(1);
    }
    epoch.print(idle);
}

/// Ten numbers and a label a row, as make_data.py writes them.
void train(const data::Dataset& dataset, const Arguments& arguments, std::int64_t idle) {
    torch::manual_seed(0);
    torch::nn::Sequential model(torch::nn::Linear(10, 512), torch::nn::Linear(512, 512),
                                torch::nn::Linear(512, 10));
    torch::optim::SGD optimizer(model->parameters(), 1e-3);
    data::Batches batches({.dataset = dataset, .policy = data::Streaming{}}, options_of(arguments),
                          std::make_shared<data::Position>());
    for (std::int64_t i = 0; i < arguments["--epochs"]; ++i) {
        Epoch epoch;
        for (auto& batch : batches) {
            std::vector<at::Tensor> columns;
            for (const auto& [name, column] : batch.columns()) {
                if (name != "label") {
                    columns.push_back(column.dim() == 1 ? column.unsqueeze(1) : column);
                }
            }
            const auto x = at::cat(columns, 1).to(at::kFloat);
            optimizer.zero_grad();
            at::cross_entropy_loss(model->forward(x), batch["label"]).backward();
            optimizer.step();
            epoch.take(batch);
        }
        epoch.print(idle);
    }
}

void run(const std::string& reader, const std::string& path, const Arguments& arguments) {
    at::set_num_threads(1);
    (void)at::mm(at::ones({8, 8}), at::ones({8, 8})); // so that libtorch is there
    const std::int64_t idle = peak_bytes();
    if (reader == "csv") {
        loop<data::Streaming>(data::read_csv(path), arguments, idle);
    } else if (reader == "parquet") {
        loop<data::Streaming>(data::read_parquet(path), arguments, idle);
    } else if (reader == "json") {
        loop<data::Streaming>(data::read_json(path), arguments, idle);
    } else if (reader == "sharded-csv") {
        loop<data::Sharded>(data::read_csv(path), arguments, idle);
    } else if (reader == "sharded-parquet") {
        loop<data::Sharded>(data::read_parquet(path), arguments, idle);
    } else if (reader == "sharded-json") {
        loop<data::Sharded>(data::read_json(path), arguments, idle);
    } else if (reader == "tar") {
        loop<data::Streaming>(data::read_webdataset(path), arguments, idle);
    } else if (reader == "mds") {
        loop<data::Streaming>(data::read_mds(path), arguments, idle);
    } else if (reader == "jpeg") {
        loop<data::Streaming>(data::read_images(path, {.size = image_size}), arguments, idle);
    } else if (reader == "files") {
        loop<data::Streaming>(data::read_text(path, {.whole_files = true}), arguments, idle);
    } else if (reader == "memory") {
        loop<data::Permuted>(data::from_tensors(numbers(std::stoll(path))), arguments, idle);
    } else if (reader == "index-select") {
        index_select(arguments, std::stoll(path), idle);
    } else if (reader == "arrow-csv") {
        arrow_csv(path, idle);
    } else if (reader == "arrow-parquet") {
        arrow_parquet(path, idle);
    } else if (reader == "turbojpeg") {
        turbojpeg(path, idle);
    } else if (reader == "train-csv") {
        train(data::read_csv(path), arguments, idle);
    } else if (reader == "train-memory") {
        const auto csv = data::read_csv(path);
        const auto rows = csv.take(csv.size());
        train(data::from_tensors(rows.columns()), arguments, idle);
    } else {
        throw std::runtime_error("no such reader: " + reader);
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc < 3) {
            throw std::runtime_error("usage: ingest READER PATH [--option value ...]");
        }
        run(argv[1], argv[2], Arguments(argc - 3, argv + 3));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "ingest: %s\n", error.what());
        return 1;
    }
}
