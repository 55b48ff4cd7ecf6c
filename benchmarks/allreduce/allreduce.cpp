// SPDX-License-Identifier: Apache-2.0
// Times of float32 all-reduces on the ranks of one MPI job, and of plain copies as the limit.
//
//   mpirun -n 2 ./allreduce MODES SIZES SECONDS
//   mpirun -n 2 ./allreduce bucket,tensor,mpi,copy,cached_copy 4,1048576 0.1
//
// MODES run in this order for each size: `bucket` is rtrain's all-reduce in place of a bucket,
// `tensor` that of any tensor, `mpi` is MPI_Allreduce (MPI_IN_PLACE); `copy` is a memcpy of as many
// bytes by all ranks at once, `cached_copy` the same within a piece of memory that fits the L2
// cache. SECONDS are spent on each pair. Rank 0 prints a JSON line for each.
//
// A sample is one call: the buffer is rewritten, ranks meet in a barrier, the call is timed, and
// the slowest rank counts. Up to 1 KiB a sample is 16 calls in a row, rewriting included, and
// counts 1/32, because ranks leave a barrier as far apart as such a call takes.
#include <rtrain/backend/mpi.hpp>
#include <rtrain/comm/communicator.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t small_bytes = 1024;
constexpr int calls_of_small_sample = 16;
constexpr std::int64_t cached_elements = 16384; // 64 KiB, twice

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::string> split(const char* list) {
    std::vector<std::string> words;
    std::istringstream text(list);
    for (std::string word; std::getline(text, word, ',');) {
        words.push_back(word);
    }
    return words;
}

class Benchmark {
public:
    Benchmark(rtrain::backend::Mpi& mpi, double seconds) : mpi_(mpi), seconds_(seconds) {}

    void measure(const std::string& mode, std::int64_t bytes) {
        const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
        const bool copies = mode == "copy" || mode == "cached_copy";
        at::Tensor buffer = mode == "bucket" ? mpi_.allocate_bucket(elements, at::kFloat)
                                             : at::zeros({elements}, at::kFloat);
        at::Tensor copied = copies ? at::zeros({elements}, at::kFloat) : at::Tensor();
        float* const data = buffer.data_ptr<float>();
        const auto run = [&](auto&& call) {
            time_calls(mode, bytes, data, copies ? copied.data_ptr<float>() : data, !copies, call);
        };
        if (mode == "bucket") {
            auto reduction = mpi_.all_reduce_async(buffer, rtrain::ReduceOp::sum);
            run([&] {
                reduction.start();
                reduction.wait();
            });
        } else if (mode == "tensor") {
            run([&] { mpi_.all_reduce(buffer, rtrain::ReduceOp::sum); });
        } else if (mode == "mpi") {
            run([&] {
                MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                              MPI_COMM_WORLD);
            });
        } else if (mode == "copy") {
            run([&] { copy(copied.data_ptr<float>(), data, elements); });
        } else if (mode == "cached_copy") {
            run([&] {
                for (std::int64_t done = 0; done < elements; done += cached_elements) {
                    copy(copied.data_ptr<float>(), data,
                         std::min(cached_elements, elements - done));
                }
            });
        } else {
            throw std::invalid_argument("unknown mode " + mode);
        }
    }

private:
    static void copy(float* to, const float* from, std::int64_t elements) {
        std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
        asm volatile("" : : "r"(to), "r"(from) : "memory"); // it must happen each time
    }

    /// `data` is rewritten before each call, `result` is where its outcome lies.
    template <class Call>
    void time_calls(const std::string& mode, std::int64_t bytes, float* data, const float* result,
                    bool sums, Call&& call) {
        const auto elements = static_cast<std::size_t>(bytes) / sizeof(float);
        const int calls = bytes <= small_bytes ? calls_of_small_sample : 1;
        const auto rewrite = [&](int turn) {
            std::fill_n(data, elements, static_cast<float>(mpi_.rank() + 1 + turn % 3));
        };
        const auto sample = [&](int turn) {
            rewrite(turn);
            MPI_Barrier(MPI_COMM_WORLD);
            const auto start = Clock::now();
            for (int i = 0; i < calls; ++i) {
                if (i > 0) {
                    rewrite(turn);
                }
                call();
            }
            return seconds_since(start) / calls;
        };
        const auto check = [&](int turn) {
            const int size = mpi_.size();
            const int of_one = mpi_.rank() + 1 + turn % 3;
            const auto expected =
                static_cast<float>(sums ? size * (size + 1) / 2 + size * (turn % 3) : of_one);
            // A cached copy leaves nothing behind its piece.
            const std::size_t reach =
                mode == "cached_copy" ? std::min<std::size_t>(elements, cached_elements) : elements;
            if (!std::all_of(result, result + reach, [&](float x) { return x == expected; })) {
                throw std::runtime_error("wrong result of " + mode + " at " +
                                         std::to_string(bytes) + " bytes");
            }
        };

        sample(1);
        check(1);
        double one_sample = seconds_;
        for (int trial = 0; trial < 2; ++trial) {
            const auto start = Clock::now();
            sample(trial);
            one_sample = std::min(one_sample, seconds_since(start));
        }
        std::vector<double> times(samples_worth(one_sample, calls > 1 ? 20.0 : 4.0));
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] = sample(static_cast<int>(i));
        }
        check(static_cast<int>(times.size()) - 1);
        MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE,
                      MPI_MAX, MPI_COMM_WORLD);
        if (mpi_.rank() == 0) {
            print(mode, bytes, times);
        }
    }

    /// How many samples fit the time; the same on all ranks.
    [[nodiscard]] std::size_t samples_worth(double one_sample, double least) const {
        MPI_Allreduce(MPI_IN_PLACE, &one_sample, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return static_cast<std::size_t>(std::clamp(seconds_ / one_sample, least, 1000.0));
    }

    static void print(const std::string& mode, std::int64_t bytes, std::vector<double>& times) {
        std::sort(times.begin(), times.end());
        std::printf("{\"contestant\": \"%s\", \"bytes\": %lld, \"samples\": %zu, \"min_us\": %.4f, "
                    "\"median_us\": %.4f}\n",
                    mode.c_str(), static_cast<long long>(bytes), times.size(), times.front() * 1e6,
                    times[times.size() / 2] * 1e6);
        std::fflush(stdout);
    }

    rtrain::backend::Mpi& mpi_;
    double seconds_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::cerr << "usage: allreduce MODES SIZES SECONDS" << std::endl;
        return EXIT_FAILURE;
    }
    try {
        rtrain::backend::Mpi mpi;
        mpi.start({.threads_per_worker = 1});
        Benchmark benchmark(mpi, std::atof(argv[3]));
        for (const auto& size : split(argv[2])) {
            for (const auto& mode : split(argv[1])) {
                benchmark.measure(mode, std::stoll(size));
            }
        }
        (void)mpi.finish({});
    } catch (const std::exception& error) {
        std::cerr << "allreduce: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
