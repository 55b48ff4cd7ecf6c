// SPDX-License-Identifier: Apache-2.0
// Random small models and random public calls between steps, on several ranks against one process:
//
//     mpirun -n 3 monkey [--seconds 20] [--seed S] [--trials N]
//
// A trial is one or two models and a few steps, drawn from its seed. A failure prints the seed and
// the calls; `--seed S` alone repeats that trial, with --seconds or --trials also those of the next
// seeds. RTRAIN_TEST_SECONDS says for how many seconds to draw new ones.
#include "monkey_model.hpp"
#include "monkey_twin.hpp"
#include "support/ranks.hpp"

#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/process/os/environment.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using namespace rtrain;
using monkey::Dice;
using monkey::Net;
using monkey::Subject;
using monkey::Wrong;

namespace {

/// What a rank throws by itself.
struct BadLuck : std::runtime_error {
    BadLuck() : std::runtime_error("bad luck") {}
};

/// One seed's models and calls.
class Trial {
public:
    Trial(test::Ranks& ranks, std::uint64_t seed) : ranks_(ranks), dice_(seed) {
        const auto models = static_cast<std::uint64_t>(1 + dice_.below(2));
        for (std::uint64_t i = 0; i < models; ++i) {
            subjects_.push_back(std::make_unique<Subject>(ranks, dice_, seed * 2 + i));
            std::ostringstream pieces;
            for (const auto& child : subjects_.back()->net().named_children()) {
                pieces << ' ' << child.key();
            }
            log("prepare", pieces.str(), rtrain::detail::describe(subjects_.back()->options()));
        }
    }

    void run() {
        const int steps = 2 + dice_.below(5);
        for (int i = 0; i < steps; ++i) {
            log("step ", i);
            for (int calls = dice_.below(4); calls > 0; --calls) {
                const int number = dice_.below(static_cast<int>(subjects_.size()));
                call(*subjects_[static_cast<std::size_t>(number)], number);
            }
            step();
        }
        if (dice_.one_in(4) && ranks_.size() > 1) {
            break_one_rank(*subjects_[0]);
        }
    }

    [[nodiscard]] const std::vector<std::string>& calls() const { return log_; }

private:
    template <class... Parts>
    void log(const Parts&... parts) {
        log_.push_back(rtrain::detail::concat(parts...));
    }

    /// The next pass of all ranks. When they go one way, gradients come in the same order on all.
    std::vector<monkey::Pass> draw_passes(const Subject& subject, bool one_way = false) {
        std::vector<monkey::Pass> passes;
        torch::manual_seed(static_cast<std::uint64_t>(dice_.below(1 << 30)));
        int way = 0;
        for (int rank = 0; rank < ranks_.size(); ++rank) {
            if (subject.options().find_unused_parameters && (rank == 0 || !one_way)) {
                way = dice_.below(3);
            }
            passes.push_back({torch::randn({4, monkey::width}), way});
        }
        return passes;
    }

    torch::Tensor forward(Subject& subject, bool one_way = false) {
        const bool twice = dice_.one_in(4) && !subject.net().recomputes();
        std::vector<std::vector<monkey::Pass>> forwards{draw_passes(subject, one_way)};
        if (twice) {
            forwards.push_back(draw_passes(subject, one_way));
        }
        log("forward", twice ? " twice" : "", subject.sync() ? "" : " under no_sync");
        return subject.forward(forwards);
    }

    void follow(Subject& subject) {
        subject.follow_backward();
        subject.check_buffers();
        subject.check_gradients();
    }

    /// A forward and a backward of all models, in one of the orders that there are.
    void pass(bool last) {
        for (auto& subject : subjects_) {
            subject->set_sync(last || dice_.one_in(2));
        }
        switch (subjects_.size() == 1 ? 0 : dice_.below(3)) {
        case 0:
            log("backward after each forward");
            for (auto& subject : subjects_) {
                forward(*subject).backward();
                follow(*subject);
            }
            break;
        case 1: {
            log("one backward of both"); // which ranks must begin to average in the same order
            const auto first = forward(*subjects_[0], true);
            (first + forward(*subjects_[1], true)).backward();
            follow(*subjects_[0]);
            follow(*subjects_[1]);
            break;
        }
        default: {
            log("forward of both, then backward of each");
            const auto first = forward(*subjects_[0]);
            const auto second = forward(*subjects_[1]);
            first.backward();
            follow(*subjects_[0]);
            second.backward();
            follow(*subjects_[1]);
        }
        }
        for (auto& subject : subjects_) {
            subject->set_sync(true);
        }
    }

    void zero(Subject& subject, bool set_to_none) {
        log("zero_grad(", set_to_none, ")");
        subject.net().zero_grad(set_to_none);
        subject.twin().zero(set_to_none);
    }

    void step() {
        for (auto& subject : subjects_) {
            zero(*subject, dice_.one_in(2));
        }
        for (int passes = dice_.below(3); passes > 0; --passes) {
            pass(false);
        }
        pass(true);
        for (auto& subject : subjects_) {
            if (dice_.one_in(3)) {
                clip(*subject);
            }
            subject->descend();
        }
    }

    void clip(Subject& subject) {
        const double most = dice_.any_of({0.01, 0.5, 100.0});
        log("clip_grad_norm_(", most, ")");
        double squares = 0;
        std::vector<torch::Tensor> seen;
        auto& gradients = subject.twin().gradients(0);
        const auto parameters = subject.twin().net().parameters();
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const bool again = std::any_of(seen.begin(), seen.end(), [&](const auto& other) {
                return other.is_same(parameters[i]);
            });
            seen.push_back(parameters[i]);
            if (gradients[i].defined() && !again) {
                squares += gradients[i].to(torch::kDouble).square().sum().item<double>();
            }
        }
        const double norm = std::sqrt(squares);
        const double found = subject.handle().clip_grad_norm_(most);
        if (!(std::abs(found - norm) <= 1e-5 + 1e-4 * norm)) {
            throw Wrong(rtrain::detail::concat("the norm is ", found, ", expected ", norm));
        }
        if (most / (norm + 1e-6) < 1) {
            for (int rank = 0; rank < ranks_.size(); ++rank) {
                for (auto& gradient : subject.twin().gradients(rank)) {
                    gradient = gradient.defined() ? gradient * (most / (norm + 1e-6)) : gradient;
                }
            }
        }
        subject.check_gradients();
    }

    /// Something public, on all ranks alike.
    void call(Subject& subject, int number) {
        const auto say = [&](const auto&... parts) { log("model ", number, ": ", parts...); };
        const int choice = dice_.below(13);
        switch (choice) {
        case 0:
        case 1: {
            const auto named = subject.net().named_parameters();
            const int index = dice_.below(static_cast<int>(named.size()) - 2); // last.* trains on
            const auto name = named[static_cast<std::size_t>(index)].key();
            say(choice == 0 ? "freeze " : "unfreeze ", name);
            subject.change(
                [&](Net& net) { net.named_parameters()[name].set_requires_grad(choice == 1); });
            break;
        }
        case 2: {
            const bool train = dice_.one_in(2);
            say("train(", train, ")");
            subject.change([&](Net& net) { net.train(train); });
            break;
        }
        case 3: {
            say("forward under no_grad");
            const torch::NoGradGuard no_grad;
            (void)subject.forward({draw_passes(subject)});
            break;
        }
        case 4:
            say("forward without backward");
            (void)subject.forward({draw_passes(subject)});
            break;
        case 5:
            say("load");
            subject.change([](Net& net) { load(net); });
            break;
        case 6:
            say("the handle copied");
            subject.copy_handle();
            break;
        case 7:
            say("prepare again");
            subject.prepare_again();
            break;
        case 8: {
            const auto index = static_cast<std::size_t>(
                dice_.below(static_cast<int>(subject.net().parameters().size())));
            say("set_data of parameter ", index);
            subject.change([&](Net& net) {
                auto parameter = net.parameters()[index];
                parameter.set_data(parameter.detach() * 0.75);
            });
            break;
        }
        case 9:
            say("to the same device");
            subject.change([](Net& net) { net.to(torch::kCPU); });
            break;
        case 10: {
            say("values changed in place");
            const torch::NoGradGuard no_grad;
            subject.change([](Net& net) { net.scale.mul_(0.75); });
            break;
        }
        case 11:
            say("another parameter under a name; prepare again");
            replace_scale(subject);
            break;
        default:
            say("an exception in the middle of backward, on all ranks");
            throw_in_backward(subject);
        }
    }

    static void load(Net& net) {
        std::stringstream stream;
        {
            torch::serialize::OutputArchive archive;
            net.save(archive);
            archive.save_to(stream);
        }
        torch::serialize::InputArchive archive;
        archive.load_from(stream);
        const torch::NoGradGuard no_grad;
        net.scale.mul_(2); // so that loading changes something
        net.load(archive);
    }

    void replace_scale(Subject& subject) {
        const bool trains = subject.net().scale.requires_grad();
        subject.change([&](Net& net) { net.replace_scale(); });
        zero(subject, true);
        const auto passes = draw_passes(subject);
        std::string code;
        try {
            (void)subject.handle()(passes[static_cast<std::size_t>(ranks_.rank())]);
        } catch (const Error& error) {
            code = error.code();
        }
        if (code != "RT-M23" && trains && ranks_.size() > 1) {
            throw Wrong("expected RT-M23, not \"" + code + "\"");
        }
        subject.prepare_again();
    }

    /// Registers a hook that throws where backward has brought some gradients and others not.
    static void run_into_exception(Net& net, const torch::Tensor& loss) {
        const auto hook =
            net.scale.register_hook([](const torch::Tensor&) -> torch::Tensor { throw BadLuck(); });
        try {
            loss.backward();
        } catch (...) {
            net.scale.remove_hook(hook);
            throw;
        }
        net.scale.remove_hook(hook);
    }

    void throw_in_backward(Subject& subject) {
        if (!subject.net().scale.requires_grad()) {
            return;
        }
        const auto loss = subject.forward({draw_passes(subject)});
        try {
            run_into_exception(subject.net(), loss);
            throw Wrong("the exception of a hook was lost");
        } catch (const BadLuck&) {
            zero(subject, true);
        }
    }

    /// Something on the last rank only: all ranks must get an error. Ends the trial.
    void break_one_rank(Subject& subject) {
        const bool breaks = ranks_.rank() == ranks_.size() - 1;
        const bool throws = dice_.one_in(2);
        log("the last rank alone ", throws ? "throws" : "replaces a parameter");
        subject.net().scale.set_requires_grad(true);
        const auto passes = draw_passes(subject);
        try {
            if (breaks && !throws) {
                subject.net().replace_scale();
            }
            const auto output = subject.handle()(passes[static_cast<std::size_t>(ranks_.rank())]);
            if (breaks && throws) {
                run_into_exception(subject.net(), output.sum());
            }
            output.sum().backward();
        } catch (const std::exception& exception) {
            ranks_.outcome = Failure{.message = exception.what()};
            return;
        }
        throw Wrong("this rank got no error");
    }

    test::Ranks& ranks_;
    Dice dice_;
    std::vector<std::unique_ptr<Subject>> subjects_;
    std::vector<std::string> log_;
};

/// Whether it held on all ranks. Else the rank that knows best why says it.
bool holds(std::uint64_t seed) {
    std::string error;
    std::vector<std::string> calls;
    bool caused_by_another = false;
    int rank = 0;
    int size = 1;
    {
        test::Ranks ranks;
        rank = ranks.rank();
        size = ranks.size();
        std::optional<Trial> trial;
        try {
            trial.emplace(ranks, seed);
            trial->run();
        } catch (const std::exception& exception) {
            error = exception.what();
            error.resize(std::min(error.find("\nException raised from"), error.size()));
            const auto* known = dynamic_cast<const Error*>(&exception);
            caused_by_another = known != nullptr && rtrain::caused_by_another(known->code());
            ranks.outcome = Failure{.message = error};
        }
        calls = trial ? trial->calls() : calls;
    }
    const int mine = error.empty() ? 2 * size : rank + (caused_by_another ? size : 0);
    int first = mine;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (mine == first && !error.empty()) {
        std::cerr << "seed " << seed << " on " << size << " ranks, rank " << rank << ": " << error
                  << "\nafter\n";
        for (const auto& call : calls) {
            std::cerr << "    " << call << '\n';
        }
        std::cerr << "again: mpirun -n " << size << " monkey --seed " << seed << std::endl;
    }
    return first == 2 * size;
}

std::optional<std::uint64_t> option(int argc, char** argv, const std::string& name) {
    for (int i = 1; i + 1 < argc; ++i) {
        if (argv[i] == name) {
            return std::stoull(argv[i + 1]);
        }
    }
    return std::nullopt;
}

} // namespace

int main(int argc, char** argv) {
    comm::ensure_mpi();
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const auto given = option(argc, argv, "--seed");
    const auto limit = option(argc, argv, "--seconds");
    const auto trials =
        option(argc, argv, "--trials")
            .value_or(given && !limit ? 1 : std::numeric_limits<std::uint64_t>::max());
    const bool timed = limit || !given;
    const auto seconds = limit.value_or(
        static_cast<std::uint64_t>(launch::env_int("RTRAIN_TEST_SECONDS").value_or(20)));
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(seconds);
    std::uint64_t seed = given.value_or(std::random_device()());
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        std::cout << "seeds from " << seed << std::endl;
    }
    std::uint64_t done = 0;
    for (int more = 1; true; ++done) {
        more = done < trials && (!timed || Clock::now() < end) ? 1 : 0;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (more == 0) {
            break;
        }
        if (!holds(seed + done)) {
            return 1;
        }
    }
    if (rank == 0) {
        std::cout << done << " trials held" << std::endl;
    }
    return 0;
}
