// SPDX-License-Identifier: Apache-2.0
// A program as users write them, in several variants; launch_test.cpp runs it alone and under
// mpirun.
//
//   scenario <variant> <storage path>
#include "support/training.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/comm/communicator.hpp>
#ifdef RTRAIN_TEST_STACKTRACE
#include <rtrain/process/stack/stacktrace.hpp>
#endif
#include <rtrain/state/module_state.hpp>

#include <boost/describe/class.hpp>

#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

#include <sys/wait.h>

namespace {

using Options = rtrain::TrainerOptions;

/// Started alone, on two ranks unless RTRAIN_TEST_WORKERS says how many.
Options options(const std::string& name, const char* storage) {
    const int workers = rtrain::launch::env_int("RTRAIN_TEST_WORKERS").value_or(2);
    return {.scaling = {.num_workers = rtrain::launch::ranks().value_or(workers)},
            .run = {.name = name,
                    .storage_path = storage,
                    .console = {.live = rtrain::launch::env_int("RTRAIN_TEST_LIVE")}}};
}

/// For mpirun, from whoever has started this program.
std::vector<std::string> given_arguments() {
    const char* const given = std::getenv("RTRAIN_TEST_MPIRUN_ARGS");
    std::istringstream words(given != nullptr ? given : "");
    return {std::istream_iterator<std::string>(words), {}};
}

/// Reports how many steps it has come; `act(worker, step)` may disturb it.
template <class Act>
auto counting(int steps, Act act) {
    return [=](auto& worker) {
        int step = 0;
        auto state = rtrain::State{}.add("step", step);
        worker.restore(state);
        while (step < steps) {
            ++step;
            act(worker, step);
            worker.report({{"step", step}}, state);
        }
    };
}

constexpr auto nothing = [](auto& /*worker*/, int /*step*/) {};

/// Trains on the CPU for want of what it counts.
struct TwoGpus : rtrain::backend::Mpi {
    using Mpi::Mpi;
    static int local_devices() { return 2; }
    [[nodiscard]] static at::Device device() { return at::kCPU; }
};

int last_rank(auto& worker) {
    return worker.size() - 1;
}

/// A state that depends on nothing but this function: saved on some ranks, it must be the same on
/// any others. Of the table, each rank has some rows, not equally many.
class Reshard {
public:
    Reshard(int rank, int size) : begin_(37 * rank / size), end_(37 * (rank + 1) / size) {
        torch::manual_seed(3);
        torch::set_num_threads(1); // sums have the same bits on any number of ranks
        net_ = torch::nn::Sequential(torch::nn::Linear(13, 101), torch::nn::Linear(101, 7));
        optimizer_ = std::make_unique<torch::optim::Adam>(net_->parameters());
        table_ = torch::randn({37, 11});
        for (int i = 0; i < 3; ++i) {
            optimizer_->zero_grad();
            net_->forward(torch::ones({2, 13})).square().sum().backward();
            optimizer_->step();
        }
    }
    void save(rtrain::StateWriter& out) const {
        out.rows("table", table_.slice(0, begin_, end_), begin_, 37);
        rtrain::checkpoint::save_module(*net_, out);
    }
    void load(const rtrain::StateReader& in) {
        require(in.rows("table", begin_, end_).equal(table_.slice(0, begin_, end_)));
        require(in.tensor("table").equal(table_));
        for (const auto& item : net_->named_parameters()) {
            require(in.tensor(item.key()).equal(item.value()));
        }
    }
    [[nodiscard]] torch::optim::Adam& optimizer() { return *optimizer_; }
    /// What Adam keeps of each parameter.
    [[nodiscard]] std::vector<at::Tensor> moments() {
        std::vector<at::Tensor> all;
        for (const auto& parameter : net_->parameters()) {
            const auto& adam = static_cast<const torch::optim::AdamParamState&>(
                *optimizer_->state().at(parameter.unsafeGetTensorImpl()));
            all.push_back(adam.exp_avg());
            all.push_back(adam.exp_avg_sq());
        }
        return all;
    }
    static void require(bool holds) {
        if (!holds) {
            throw std::runtime_error("WRONG: loaded values differ");
        }
    }

private:
    torch::nn::Sequential net_{nullptr};
    std::unique_ptr<torch::optim::Adam> optimizer_;
    at::Tensor table_;
    std::int64_t begin_;
    std::int64_t end_;
};

using ShardedTrainer =
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Sharded>;

/// Trains a small net for three epochs of 48 batches, slowly; each rank's first rows of batches go
/// into a log. Prints the sum of the weights.
void train_slowly(auto& worker, const std::filesystem::path& log, std::chrono::milliseconds pace) {
    torch::manual_seed(1);
    auto net = worker.prepare(
        torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)));
    torch::optim::Adam optimizer(net->parameters());
    auto state = rtrain::State{}.add("net", net).add("optimizer", optimizer);
    auto batches = worker.dataset_shard("train").batches({.size = 4, .shuffle = true});
    for (const int epoch : worker.epochs(3, state)) {
        for (auto& batch : batches) {
            std::this_thread::sleep_for(pace);
            optimizer.zero_grad();
            torch::mse_loss(net(batch["x"]), batch["y"]).backward();
            optimizer.step();
            std::ofstream(log / ("rank" + std::to_string(worker.rank())), std::ios::app)
                << epoch << ' ' << batch["row"][0].template item<std::int64_t>() << '\n';
        }
        worker.report({{"epoch", epoch}}, state);
    }
    double sum = 0;
    for (const auto& parameter : net->parameters()) {
        sum += parameter.sum().template item<double>();
    }
    if (worker.rank() == 0) {
        std::printf("WEIGHTS %a\n", sum);
    }
}

rtrain::data::Datasets slow_data() {
    const auto rows = torch::arange(384);
    const auto x = torch::sin(torch::arange(384 * 4).view({384, 4}).to(torch::kFloat));
    return {
        {"train", rtrain::data::from_tensors({{"x", x}, {"y", x.sum(1, true)}, {"row", rows}})}};
}

/// True once in all processes that share the directory.
bool first_time(const std::filesystem::path& directory, const std::string& what) {
    const auto mark = directory / what;
    if (std::filesystem::exists(mark)) {
        return false;
    }
    test::write(mark, "");
    return true;
}

/// What happens once in step 3, on the last rank.
void disturb(const std::string& how) {
    if (how == "throws") {
        throw std::runtime_error("bad luck");
    }
    if (how == "stops") {
        std::raise(SIGSTOP);
    }
    if (how == "sleeps") {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (how == "spins") {
        for (std::atomic<bool> go_on{true}; go_on;) {
        }
    }
    if (how == "leaves") {
        std::exit(0);
    }
}

/// TCP sockets of this process that listen on an interface other than the loopback one.
int listening_sockets() {
    std::set<std::string> own;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        own.insert(std::filesystem::read_symlink(file.path(), gone).string());
    }
    int count = 0;
    for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        std::ifstream lines(table);
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            const std::vector<std::string> fields(std::istream_iterator<std::string>(words), {});
            const bool listens = fields.size() > 9 && fields[3] == "0A";
            const bool is_own = listens && own.contains("socket:[" + fields[9] + "]");
            count += is_own && !fields[1].starts_with("0100007F") ? 1 : 0;
        }
    }
    return count;
}

/// A function whose children end in all ways: none of them is the rank.
constexpr auto forking = [](auto& worker) {
    int step = 0;
    auto state = rtrain::State{}.add("step", step);
    for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
        const torch::NoGradGuard evaluation; // with threads, which its children do not have
        auto batches = worker.dataset_shard("train").batches({.size = 4, .threads = 2});
        for (const char* const how : {"exits", "returns", "throws"}) {
            auto batch = batches.begin();
            const pid_t child = ::fork();
            if (child == 0) {
                const std::string way = how;
                if (way == "exits") {
                    std::exit(0);
                } else if (way == "throws") {
                    throw std::runtime_error("bad luck of a child");
                }
                return;
            }
            int status = 0;
            ::waitpid(child, &status, 0);
            std::cout << how << ' ' << (WIFEXITED(status) ? WEXITSTATUS(status) : -1) << std::endl;
        }
        worker.report({{"step", ++step}}, state);
    }
};

/// Each rank waits for the others in a communicator of its own: nobody can compare these calls.
[[gnu::noinline]] void wait_in_different_calls(rtrain::comm::Communicator& ranks) {
    const auto group = ranks.split(0);
    auto ones = torch::ones({7});
    std::cout << "WAITS" << std::endl;
    if (ranks.rank() == 0) {
        group->all_reduce(ones, rtrain::ReduceOp::sum);
    }
    ranks.barrier();
}

struct Hyper {
    int steps = 3;
    double lr = 0.1;
};
BOOST_DESCRIBE_STRUCT(Hyper, (), (steps, lr))

/// Trains with a wrong configuration, then with a right one, of which one attempt fails.
void train_with_structs(const char* storage) {
    const auto train = [&](rtrain::TrainConfig config) {
        Options how = options("r", storage);
        how.config = std::move(config);
        how.run.failure.max_failures = 1;
        return rtrain::Trainer<>(how).fit([](auto& worker, const Hyper& hyper) {
            const bool fails = !worker.checkpoint();
            counting(hyper.steps, [&](auto&, int step) {
                if (fails && step == 2) {
                    throw std::runtime_error("bad luck");
                }
            })(worker);
        });
    };
    try {
        train({{"step", 4}});
    } catch (const rtrain::ConfigError& error) {
        std::cout << "ERROR " << error.what() << std::endl;
    }
    const rtrain::Result result = train(Hyper{.steps = 4});
    const auto stored = rtrain::json::parse(test::read(result.path / "params.json"));
    std::cout << "RESULT " << result.metrics.at("step") << ' '
              << (stored == boost::json::value{{"steps", 4}, {"lr", 0.1}}) << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const std::string variant = argv[1];
    const char* const storage = argv[2];
    try {
        if (variant == "reshard") { // saves in the first start, loads in later ones
            ShardedTrainer({.run = {.name = "r", .storage_path = storage}}).fit([](auto& worker) {
                Reshard own(worker.rank(), worker.size());
                std::vector<at::Tensor> expected;
                for (const auto& moment : own.moments()) {
                    expected.push_back(moment.clone());
                }
                auto state = rtrain::State{}.add("own", own).add("optimizer", own.optimizer());
                if (!worker.checkpoint()) {
                    worker.report({}, state);
                }
                for (auto& moment : own.moments()) {
                    moment.zero_();
                }
                worker.restore(state);
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    Reshard::require(own.moments()[i].equal(expected[i]));
                }
            });
        } else if (variant == "two-fits") {
            const auto first =
                rtrain::Trainer<>(options("first", storage)).fit(counting(3, nothing));
            const auto local = rtrain::Trainer<rtrain::backend::Local>(
                                   {.run = {.name = "local" + std::to_string(::getpid()),
                                            .storage_path = storage}})
                                   .fit(counting(1, nothing));
            auto next = options("second", storage);
            next.resume_from = first.checkpoint;
            const auto second = rtrain::Trainer<>(next).fit(counting(5, nothing));
            std::cout << "RESULT " << first.metrics.at("step") << ' ' << local.metrics.at("step")
                      << ' ' << second.metrics.at("step") << ' ' << second.metrics_history.size()
                      << std::endl;
        } else if (variant == "caught") {
            try {
                rtrain::Trainer<>(options("bad", storage)).fit([](auto& worker) {
                    if (worker.rank() == last_rank(worker)) {
                        throw std::runtime_error("bad luck");
                    }
                    worker.barrier();
                });
            } catch (const rtrain::TrainingFailedError& error) {
                std::cout << "CAUGHT " << error.worker_failures().size() << ' '
                          << error.worker_failures().begin()->second << std::endl;
            }
            const auto good = rtrain::Trainer<>(options("good", storage)).fit(counting(2, nothing));
            std::cout << "RESULT " << good.metrics.at("step") << std::endl;
        } else if (variant == "uncaught" || variant == "escapes") {
            rtrain::Trainer<>(options("r", storage)).fit([](auto& worker) {
                if (worker.rank() == last_rank(worker)) {
                    throw std::runtime_error("bad luck");
                }
                worker.barrier();
            });
        } else if (variant == "output") {
            rtrain::Trainer<>(options("r", storage)).fit([](auto& worker) {
                for (int rank = 0; rank < worker.size(); ++rank) {
                    if (rank == worker.rank()) {
                        std::cout << "hello from " << rank << "\nand again" << std::endl;
                        std::cerr << "error from " << rank << std::endl;
                    }
                    worker.barrier();
                }
                std::cout << std::string(20000, 'x') << std::endl;
            });
        } else if (variant == "killed" || variant == "restarted") {
            auto how = options("r", storage);
            how.run.failure.max_failures = variant == "restarted" ? 2 : 0;
            const std::filesystem::path marks = storage;
            const auto result = rtrain::Trainer<>(how).fit(counting(6, [&](auto& worker, int step) {
                const auto mark = marks / ("killed-at-" + std::to_string(step));
                if ((step == 3 || step == 5) && worker.rank() == last_rank(worker) &&
                    !std::filesystem::exists(mark)) {
                    test::write(mark, "");
                    std::raise(SIGKILL);
                }
            }));
            std::cout << "RESULT " << result.metrics.at("step") << ' '
                      << result.metrics_history.size() << std::endl;
        } else if (variant == "exits") {
            rtrain::Trainer<>(options("r", storage)).fit(counting(3, [](auto& worker, int step) {
                if (step == 2 && worker.rank() == 0) {
                    std::_Exit(7);
                }
            }));
        } else if (variant == "exits-quietly") {
            rtrain::Trainer<>(options("r", storage)).fit(counting(3, [](auto& worker, int step) {
                if (step == 2 && worker.rank() == last_rank(worker)) {
                    std::_Exit(0);
                }
                worker.barrier();
            }));
        } else if (variant == "finalizes") { // before the next fit()
            rtrain::Trainer<>(options("first", storage)).fit(counting(1, nothing));
            MPI_Finalize();
            rtrain::Trainer<>(options("second", storage)).fit(counting(1, nothing));
        } else if (variant == "finalizes-within") {
            rtrain::Trainer<>(options("r", storage)).fit(counting(3, [](auto& worker, int step) {
                if (step == 2 && worker.rank() == last_rank(worker)) {
                    MPI_Finalize();
                }
                worker.barrier();
            }));
        } else if (variant == "wrong-size") {
            auto how = options("r", storage);
            how.scaling.num_workers = 7;
            if (!rtrain::launch::ranks()) {
                how.scaling.mpirun_args = {"-n", "2"};
            }
            rtrain::Trainer<>(how).fit(counting(1, nothing));
        } else if (variant == "all-gpus") { // a rank for each half
            auto how = options(variant, storage);
            how.scaling = {.use_gpu = true, .gpus_per_worker = 0.5};
            rtrain::Trainer<TwoGpus>(how).fit(
                [](auto& worker) { std::cout << "RANK OF " << worker.size() << std::endl; });
        } else if (variant == "throws" || variant == "stops" || variant == "sleeps" ||
                   variant == "spins" || variant == "leaves") {
            auto how = options("r", storage);
            how.run.failure.max_failures = 1;
            how.run.failure.hang = {.idle_s = 2, .busy_s = 3, .stopped_s = 1.5};
            const auto result = rtrain::Trainer<>(how).fit(counting(6, [&](auto& worker, int step) {
                std::cout << "PID " << ::getpid() << std::endl;
                if (step == 3 && worker.rank() == last_rank(worker) &&
                    first_time(storage, variant)) {
                    disturb(variant);
                }
            }));
            std::cout << "RESULT " << result.metrics.at("step") << ' '
                      << result.metrics_history.size() << std::endl;
        } else if (variant == "trains" || variant == "trains-fast") {
            auto how = options("r", storage);
            how.datasets = slow_data();
            how.run.checkpoint.frequency = 100; // no report is due
            const std::chrono::milliseconds pace(variant == "trains" ? 40 : 0);
            const auto result = rtrain::Trainer<>(how).fit(
                [&](auto& worker) { train_slowly(worker, storage, pace); });
            std::cout << "RESULT " << result.metrics.at("epoch") << ' '
                      << result.metrics_history.size() << std::endl;
        } else if (variant == "nodes" ||
                   variant == "both-nodes") { // tests/launch/cut_nodes_test.py
            auto how = options("r", storage);
            how.scaling.num_workers = {variant == "nodes" ? 1 : 2, 3};
            how.scaling.mpirun_args = given_arguments();
            how.run.failure.max_failures = 2;
            const auto result = rtrain::Trainer<>(how).fit(counting(40, [](auto& worker, int step) {
                if (worker.rank() == 0 && step % 10 == 1) {
                    std::cout << "SIZE " << worker.size() << std::endl;
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(400));
                worker.barrier();
            }));
            std::cout << "RESULT " << result.metrics.at("step") << std::endl;
        } else if (variant == "rebuilt") { // the driver's program is not there any more
            const auto first =
                rtrain::Trainer<>(options("first", storage)).fit(counting(1, nothing));
            if (!rtrain::launch::ranks()) {
                std::filesystem::remove(std::filesystem::read_symlink("/proc/self/exe"));
            }
            const auto second =
                rtrain::Trainer<>(options("second", storage)).fit(counting(2, nothing));
            std::cout << "RESULT " << second.metrics.at("step") << std::endl;
        } else if (variant == "noticed") { // by a function, while a step goes on for long
            auto how = options("r", storage);
            how.run.failure.preemption_notice = [storage] {
                return std::filesystem::exists(std::filesystem::path(storage) / "notice");
            };
            rtrain::Trainer<>(how).fit(counting(2, [](auto& /*worker*/, int step) {
                std::this_thread::sleep_for(std::chrono::seconds(step == 1 ? 0 : 5));
            }));
        } else if (variant == "own-handlers") {
            std::signal(SIGTERM, [](int) {
                (void)!::write(STDOUT_FILENO, "HANDLED\n", sizeof "HANDLED\n" - 1);
            });
            rtrain::Trainer<>(options("r", storage)).fit(counting(1, nothing));
            std::raise(SIGTERM);
        } else if (variant.starts_with("away-")) { // tests/launch/away_nodes_test.py
            auto how = options("r", storage);
            how.scaling.mpirun_args = given_arguments();
            how.scaling.use_gpu = variant == "away-refuses"; // before ranks have joined the driver
            const bool fails = variant == "away-throws";
            const auto result =
                rtrain::Trainer<>(how).fit(counting(3, [fails](auto& worker, int step) {
                    worker.barrier();
                    if (fails && step == 1 && worker.rank() == 1) {
                        throw std::runtime_error("no such luck");
                    }
                }));
            std::cout << "RESULT " << result.metrics.at("step") << std::endl;
        } else if (variant == "restores") {
            using Trainer = rtrain::Trainer<>;
            const std::filesystem::path run = std::filesystem::path(storage) / "r";
            std::cout << "CAN " << Trainer::can_restore(run) << Trainer::can_restore(storage)
                      << std::endl;
            auto trainer = Trainer::restore(run);
            const auto result = trainer.fit(counting(8, nothing));
            std::cout << "RESULT " << result.metrics.at("step") << ' '
                      << result.metrics.at("config").at("lr") << std::endl;
            rtrain::TrainerOptions other;
            other.datasets = slow_data();
            Trainer::restore(run, other).fit(counting(9, nothing));
        } else if (variant == "forks") {
            auto how = options("r", storage);
            how.datasets = slow_data();
            rtrain::Trainer<>(how).fit(forking);
            std::cout << "RESULT" << std::endl;
        } else if (variant == "large") {
            auto how = options("r", storage);
            how.run.failure.max_failures = 3;
            rtrain::Trainer<>(how).fit([](auto& worker) {
                auto large = torch::zeros({1'000'000});
                worker.report({}, rtrain::State{}.add("large", large));
            });
        } else if (variant == "listens") {
            rtrain::Trainer<>(options("r", storage)).fit([](auto& worker) {
                worker.barrier();
                std::cout << "LISTENS " << listening_sockets() << std::endl;
            });
        } else if (variant == "chatters") { // 400,384 bytes a rank, as soon as it can
            auto how = options("r", storage);
            how.run.failure.hang = {.idle_s = 2, .busy_s = 3};
            rtrain::Trainer<>(how).fit(counting(2, [](auto& worker, int) {
                for (int line = 0; line < 200; ++line) {
                    std::cout << std::string(1000, 'x') << '\n';
                }
                std::cout.flush();
                worker.barrier();
            }));
        } else if (variant == "only-the-driver-fits") {
            if (!rtrain::launch::ranks()) {
                rtrain::Trainer<>(options("r", storage)).fit(counting(4, nothing));
            }
        } else if (variant == "configured") {
            auto how = options("r", storage);
            how.config = {{"lr", 0.5}};
            rtrain::Trainer<>(how).fit(counting(4, nothing));
        } else if (variant == "typed") {
            train_with_structs(storage);
        } else if (variant == "crossed" || variant == "crossed-unnoticed") {
            auto how = options("r", storage);
            if (variant == "crossed") {
                how.run.failure.hang.idle_s = 2;
            }
            rtrain::Trainer<>(how).fit(
                [](auto& worker) { wait_in_different_calls(worker.communicator()); });
        } else if (variant == "clings") { // to its loop, whatever is thrown
            rtrain::Trainer<>(options("r", storage)).fit([&](auto& worker) {
                int step = 0;
                auto state = rtrain::State{}.add("step", step);
                worker.restore(state);
                while (step < 1'000'000) {
                    try {
                        ++step;
                        worker.report({{"step", step}}, state);
                        test::write(std::filesystem::path(storage) / "begun", "");
                    } catch (...) {
                        std::cout << "CAUGHT" << std::endl;
                    }
                }
            });
        } else if (variant == "slow") {
            rtrain::Trainer<>(options("r", storage)).fit(counting(100000, [](auto&, int) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }));
        } else {
            return 2;
        }
    } catch (const rtrain::Error& error) {
        if (variant == "escapes") {
            std::thread([thrown = std::current_exception()] { // as from a main() without a handler
                std::rethrow_exception(thrown);
            })
                .join();
        }
        std::cout << "ERROR " << error.what() << std::endl;
        return 1;
    }
}
