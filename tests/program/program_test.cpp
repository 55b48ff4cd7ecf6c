// SPDX-License-Identifier: Apache-2.0
// The parts of `rtrain run` that need no ranks.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/program/command_line.hpp>
#include <rtrain/program/held_ports.hpp>
#include <rtrain/program/meeting_point.hpp>
#include <rtrain/program/module_link.hpp>
#include <rtrain/program/module_message.hpp>
#include <rtrain/program/place.hpp>
#include <rtrain/program/plan.hpp>
#include <rtrain/program/program_checks.hpp>
#include <rtrain/program/program_path.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/program/program_trainer.hpp>
#include <rtrain/program/rank_environment.hpp>
#include <rtrain/program/run_settings.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace rtrain;
using namespace rtrain::program;

namespace {

/// Sets a variable of this process, or unsets it, and restores it.
class Setting {
public:
    Setting(std::string name, const char* value) : name_(std::move(name)) {
        if (const char* const now = std::getenv(name_.c_str())) {
            before_ = now;
        }
        set(value);
    }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;
    ~Setting() { set(before_ ? before_->c_str() : nullptr); }

private:
    void set(const char* value) {
        value != nullptr ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
    }
    std::string name_;
    std::optional<std::string> before_;
};

RunCommand parse(const std::vector<std::string>& words) {
    return RunCommand::parse(words);
}

} // namespace

TEST_CASE("Program.command_line_is_that_of_torchrun") {
    const auto command = parse({"--nproc_per_node=3", "--max-restarts", "2", "--standalone",
                                "--tee", "3", "--config", "lr=0.1", "--config", "optimizer=adam",
                                "--grace", "5", "sh", "-c", "exit"});
    const ProgramOptions& options = command.options;
    CHECK(options.scaling.num_workers == NumWorkers(3));
    CHECK(options.run.failure.max_failures == 2);
    CHECK(options.run.failure.preemption_grace_s == 5);
    CHECK(options.config == Config{{"lr", 0.1}, {"optimizer", "adam"}});
    CHECK(options.command == std::vector<std::string>{"sh", "-c", "exit"});
    CHECK(command.ignored == std::vector<std::string>{"--standalone", "--tee"});
    CHECK(parse({"-n2:4", "sh"}).options.scaling.num_workers == NumWorkers(2, 4));
    const auto data =
        parse({"--dataset", "a=/x/../a=b", "--dataset", "b=c", "sh"}).options.datasets;
    CHECK(data.at("a") == "/a=b");
    CHECK(data.at("b") == (std::filesystem::current_path() / "c").string());
    CHECK(!parse({"--hang-idle", "0", "sh"}).options.run.failure.hang.enabled);
    CHECK(parse({"--hosts", "a:4,b:4", "sh"}).options.scaling.mpirun_args ==
          std::vector<std::string>{"--host", "a:4,b:4"});
    CHECK(parse({"--nnodes", "1", "sh"}).ignored == std::vector<std::string>{"--nnodes"});
    CHECK(std::holds_alternative<rendezvous::Mpi>(
        parse({"--rendezvous", "mpi", "sh"}).options.rendezvous));
    CHECK(parse({"--help"}).help);
    const auto script = parse({"train.py", "-n", "7"}).options.command; // the script's own option
    CHECK(script[0].ends_with("/python3"));
    CHECK(script[3] == "7");
    CHECK(parse({"-m", "train"}).options.command[1] == "-m");
    CHECK(parse({"--no-python", "train.py"}).options.command[0] == "train.py");
}

TEST_CASE("Program.mistakes_on_the_command_line_say_what_to_do") {
    for (const char* const ranks : {"0", "3:2", "two", "-1", "1:", "2:3:4"}) {
        CHECK(test::code_of([&] { (void)parse({"-n", ranks, "sh"}); }) == "RT-E8");
    }
    CHECK(test::contains(test::message_of([] {
                             (void)parse({"--max-restart", "3", "sh"});
                         }),
                         "unknown option --max-restart; did you mean \"--max-restarts\"?"));
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{},
                                               {"-n"},
                                               {"--grace", "soon", "sh"},
                                               {"--config", "lr", "sh"},
                                               {"--dataset", "train=", "sh"},
                                               {"--nnodes", "2", "sh"},
                                               {"--rendezvous", "gloo", "sh"},
                                               {"--threads", "0", "sh"}}) {
        CHECK(test::code_of([&] { (void)parse(words); }) == "RT-E9");
    }
    const Setting path("PATH", "/nowhere");
    CHECK(test::code_of([] { (void)parse({"train.py"}); }) == "RT-E14");
}

TEST_CASE("Program.mistakes_are_found_before_ranks_start") {
    const auto code_of = [](ProgramOptions options) {
        return test::code_of([&] { (void)run_program(std::move(options)); });
    };
    CHECK(code_of({}) == "RT-E5");
    CHECK(code_of({.command = {"no-such-program"}}) == "RT-E5");
    CHECK(code_of({.command = {"sh", "-c", "true"}, .scaling = {.num_workers = 0}}) == "RT-C1");
    CHECK(code_of({.command = {"./no/such/program"}}) == "RT-E5");
    CHECK(code_of({.command = {"python3", "no_such_script.py"}}) == "RT-E5");
    CHECK(code_of({.command = {"/etc/passwd"}}) == "RT-E6");
    CHECK(code_of({.command = {"/etc"}}) == "RT-E6");
    CHECK(code_of({.command = {"python3 train.py"}}) == "RT-E7");
    CHECK(code_of({.command = {"/proc/self/exe"}}) == "RT-E10"); // this test
    const Setting rank("RANK", "1");
    const Setting size("WORLD_SIZE", "2");
    CHECK(code_of({.command = {"sh"}}) == "RT-E11");
}

TEST_CASE("Program.a_range_of_ranks_has_no_port_by_hand") {
    const Setting port("MASTER_PORT", "29500");
    CHECK(test::code_of([] {
              check_program({.command = {"sh"}, .scaling = {.num_workers = {1, 2}}});
          }) == "RT-E13");
    check_program({.command = {"sh"}, .scaling = {.num_workers = 2}});
}

TEST_CASE("Program.the_environment_of_a_rank") {
    const Setting threads("OMP_NUM_THREADS", nullptr);
    const Setting unbuffered("PYTHONUNBUFFERED", "0");
    const Setting master("MASTER_PORT", "1");
    const RankPlace place{
        .rank = 5, .size = 6, .local_rank = 1, .local_size = 2, .node = 1, .nodes = 2};
    ProgramPlan plan{
        .run = "bert", .restarts = 2, .max_restarts = -1, .address = "10.0.0.1", .ports = {4711}};
    auto variables = rank_environment(place, ProgramPlan::parse(plan.text()));
    CHECK(variables["RANK"] == "5");
    CHECK(variables["WORLD_SIZE"] == "6");
    CHECK(variables["LOCAL_RANK"] == "1");
    CHECK(variables["LOCAL_WORLD_SIZE"] == "2");
    CHECK(variables["NODE_RANK"] == "1");
    CHECK(variables["GROUP_WORLD_SIZE"] == "2");
    CHECK(variables["MASTER_ADDR"] == "10.0.0.1");
    CHECK(variables["MASTER_PORT"] == "4711"); // ports are overwritten,
    CHECK(variables["TORCHELASTIC_RUN_ID"] == "bert");
    CHECK(variables["TORCHELASTIC_RESTART_COUNT"] == "2");
    CHECK(variables["TORCHELASTIC_MAX_RESTARTS"] == "2147483647");
    CHECK(variables.count("PYTHONUNBUFFERED") == 0); // but nothing else
    CHECK(variables["PYTHONFAULTHANDLER"] == "1");
    CHECK(std::stoi(variables["OMP_NUM_THREADS"]) >= 1);
    CHECK(variables.count("CUDA_VISIBLE_DEVICES") == 0);

    plan.threads = 3;
    plan.meeting = Meeting::tensorflow;
    plan.ports = {1, 2};
    variables = rank_environment(place, plan);
    CHECK(variables["OMP_NUM_THREADS"] == "3");
    CHECK(variables.count("RANK") == 0);
    CHECK(json::parse(variables["TF_CONFIG"]) ==
          json::parse(R"({"cluster": {"worker": ["10.0.0.1:1", "10.0.0.1:2"]},
                          "task": {"type": "worker", "index": 5}})"));
}

TEST_CASE("Program.ranks_get_their_GPUs") {
    const auto gpus = [](int local_rank, double each, int all) {
        return gpus_of_rank({.local_rank = local_rank, .local_size = 4}, each, all);
    };
    CHECK(gpus(3, 1, 4) == std::vector<int>{3});
    CHECK(gpus(1, 2, 8) == std::vector<int>{2, 3});
    CHECK(gpus(3, 0.5, 2) == std::vector<int>{1});
    CHECK(test::code_of([&] { (void)gpus(3, 2, 4); }) == "RT-E2");
    const Setting visible("CUDA_VISIBLE_DEVICES", "4,6");
    auto variables = rank_environment({.rank = 1, .size = 2, .local_rank = 1, .local_size = 2},
                                      {.meeting = Meeting::none, .gpus = 1});
    CHECK(variables["CUDA_VISIBLE_DEVICES"] == "6");
}

TEST_CASE("Program.places_of_mpirun_and_srun") {
    const RankPlace place{
        .rank = 3, .size = 4, .local_rank = 1, .local_size = 2, .node = 1, .nodes = 2};
    {
        const Setting given(RankPlace::variable, place.text().c_str());
        CHECK(RankPlace::of_this_process() == place);
    }
    {
        const Setting rank("OMPI_COMM_WORLD_RANK", "3");
        const Setting size("OMPI_COMM_WORLD_SIZE", "4");
        const Setting local_rank("OMPI_COMM_WORLD_LOCAL_RANK", "1");
        const Setting local_size("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
        CHECK(RankPlace::of_this_process() == place);
        CHECK(test::code_of([] { (void)run_program({.command = {"sh"}}); }) == "RT-E11");
    }
    {
        const Setting rank("SLURM_PROCID", "3");
        const Setting size("SLURM_STEP_NUM_TASKS", "4");
        const Setting local_rank("SLURM_LOCALID", "1");
        const Setting node("SLURM_NODEID", "1");
        const Setting nodes("SLURM_STEP_NUM_NODES", "2");
        const Setting tasks("SLURM_STEP_TASKS_PER_NODE", "2(x2)");
        CHECK(RankPlace::of_this_process() == place);
        const Setting pmi_rank("PMI_RANK", "3"); // of srun --mpi=pmi2
        const Setting pmi_size("PMI_SIZE", "4");
        CHECK(RankPlace::of_this_process() == place);
    }
    CHECK(RankPlace::of_this_process() == RankPlace{});
    CHECK(RankPlace::tasks_of_node("4(x2),3", 1) == 4);
    CHECK(RankPlace::tasks_of_node("4(x2),3", 2) == 3);
    CHECK(MeetingPoint::first_host("node[01-04,09],other") == "node01");
    CHECK(MeetingPoint::first_host("node7,node8") == "node7");
    CHECK(MeetingPoint::first_host("a,b[1-2]") == "a");
}

TEST_CASE("Program.a_held_port_is_no_other's_but_a_rank_can_listen_on_it") {
    std::set<int> all;
    std::vector<HeldPorts> held;
    for (int i = 0; i < 50; ++i) {
        held.emplace_back(4);
        all.insert(held.back().numbers().begin(), held.back().numbers().end());
    }
    CHECK(all.size() == 200);
    for (const int family : {AF_INET, AF_INET6}) {
        const int socket = ::socket(family, SOCK_STREAM, 0);
        const int on = 1;
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        sockaddr_in6 address{};
        address.sin6_family = static_cast<sa_family_t>(family);
        address.sin6_port = htons(static_cast<in_port_t>(held[0].numbers()[0]));
        const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof address;
        CHECK(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0);
        CHECK(::listen(socket, 5) == 0);
        ::close(socket);
    }
}

TEST_CASE("Program.ranks_without_a_driver_agree_on_a_port") {
    const RankPlace first{.rank = 0, .size = 2, .local_size = 2};
    const RankPlace second{.rank = 1, .size = 2, .local_rank = 1, .local_size = 2};
    CHECK(MeetingPoint::agree({}, 7) == 7);
    CHECK(test::code_of([&] { // rank 0 is missing
              (void)MeetingPoint::agree(second, 0, MeetingPoint::Limit(0.01));
          }) == "RT-E3");
    CHECK(test::code_of([&] { // rank 1 is missing
              (void)MeetingPoint::agree(first, 4711, MeetingPoint::Limit(0.01));
          }) == "RT-E3");
    std::thread other([&] { CHECK(MeetingPoint::agree(first, 4711) == 4711); });
    CHECK(MeetingPoint::agree(second, 0) == 4711);
    other.join();
}

TEST_CASE("Program.no_port_is_an_error") {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit now{10, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
    CHECK(test::code_of([] { const HeldPorts many(20); }) == "RT-E1");
    ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("Program.names_of_programs") {
    CHECK(name_of_program({"python3", "-u", "a/train.py", "--lr"}) == "a/train.py");
    CHECK(name_of_program({"/usr/bin/python3.11", "-m", "train"}) == "train");
    CHECK(name_of_program({"python3", "-c", "pass"}) == "python3");
    CHECK(name_of_program({"./solve", "x"}) == "./solve");
}

namespace {

/// A trainer of a shell script in a directory.
ProgramOptions script(const test::Directory& storage, const std::string& line) {
    return {.command = {"sh", "-c", line},
            .environment = {{"STORAGE", storage.path().string()}},
            .scaling = {.num_workers = 2},
            .run = {.name = "script", .storage_path = storage.path(), .failure = {.backoff_s = 0}},
            .config = {{"lr", 0.5}}};
}

} // namespace

TEST_CASE("Program.a_trainer_runs_a_script_and_reads_its_run") {
    const test::Directory storage("program-trainer");
    auto options = script(storage, "echo $RTRAIN_CONFIG >> $STORAGE/$RANK");
    const Result result = ProgramTrainer(options).fit();
    CHECK(result.path == storage.path() / "script");
    CHECK(result.metrics_history.empty());
    CHECK(!result.error);
    CHECK(storage::read_file(storage.path() / "1") == "{\"lr\":5E-1}\n");
    (void)ProgramTrainer(options).fit(); // the same name: again
    CHECK(storage::read_file(storage.path() / "0") == "{\"lr\":5E-1}\n{\"lr\":5E-1}\n");
}

TEST_CASE("Program.messages_of_the_module_are_checked") {
    const auto parsed = module::parse(R"({"kind":"report","metrics":{"loss":0.5},"directory":"/d",)"
                                      R"("checkpoint":"best","metadata":{},"in_background":true})");
    const auto& report = std::get<module::Report>(parsed);
    CHECK(report.metrics.at("loss") == 0.5);
    CHECK(report.directory == "/d");
    CHECK(report.in_background);
    CHECK(std::get<module::Hello>(
              module::parse(R"({"kind":"hello","protocol":3,"version":"9","new":1})"))
              .protocol == 3);
    for (const char* const wrong :
         {"", "[]", R"({"kind":"meet","function":"f"})", R"({"kind":"log"})",
          R"({"kind":"meet","function":"f","text":"","more":1})",
          R"({"kind":"report","metrics":[],"directory":"","checkpoint":"","metadata":{},)"
          R"("in_background":false})",
          R"({"kind":"report","metrics":{"a":1e999},"directory":"","checkpoint":"","metadata":{},)"
          R"("in_background":false})",
          R"({"kind":"report","metrics":{},"directory":"","checkpoint":"","metadata":{},)"
          R"("in_background":"async"})",
          R"({"kind":"hello","protocol":-1,"version":""})"}) {
        CAPTURE(wrong);
        CHECK(test::code_of([&] { (void)module::parse(wrong); }) == "RT-L9");
    }
}

TEST_CASE("Program.a_trainer_throws_what_a_script_has_failed_of") {
    const test::Directory storage("program-failing");
    auto options = script(storage, "[ $RANK = 0 ] && sleep 100; exit 3");
    bool has_thrown = false;
    try {
        (void)ProgramTrainer(options).fit();
    } catch (const TrainingFailedError& error) {
        has_thrown = true;
        CHECK(error.is("RT-T1"));
        CHECK(error.worker_failures().contains(1));
        CHECK(test::contains(error.message(), "sh exited with code 3"));
    }
    CHECK(has_thrown);
    const auto kept = Result::from_path(storage.path() / "script");
    REQUIRE(kept.error);
    CHECK(test::contains(kept.error->message(), "sh exited with code 3"));

    options = script(storage, "[ $RANK = 0 ] && sleep 100; kill -SEGV $$");
    CHECK(test::code_of([&] { (void)ProgramTrainer(options).fit(); }) == "RT-L2");
    options = script(storage, "sleep 100");
    options.run.failure.hang.idle_s = 1;
    CHECK(test::code_of([&] { (void)ProgramTrainer(options).fit(); }) == "RT-L14");
    options = script(storage, "[ $RANK = 0 ] && exit 0; sleep 1; exit 3");
    CHECK(test::message_of([&] {
              (void)ProgramTrainer(options).fit();
          }).ends_with("all ranks must make the same collective calls [RT-E12]"));
}

TEST_CASE("Program.exits_of_ranks_interrupt_no_thread_of_the_program") {
    const auto handler = [] {
        struct sigaction now {};
        ::sigaction(SIGCHLD, nullptr, &now);
        return now.sa_handler;
    };
    const auto before = ::signal(SIGCHLD, SIG_IGN); // as some parents leave it
    const test::Directory storage("program-exits");
    auto options = script(storage, "until [ -e $STORAGE/seen ]; do sleep 0.01; done; "
                                   "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3");
    options.run.failure.max_failures = 1;
    sighandler_t during = SIG_IGN;
    options.run.failure.preemption_notice = [&] {
        during = handler();
        test::write(storage.path() / "seen", "");
        return false;
    };
    (void)ProgramTrainer(options).fit();
    CHECK((during == SIG_DFL));
    CHECK((handler() == SIG_IGN));
    ::signal(SIGCHLD, before);
}

TEST_CASE("Program.each_start_has_a_new_port") {
    const test::Directory storage("program-ports");
    auto options = script(storage, "echo $MASTER_PORT >> $STORAGE/$RANK; "
                                   "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; "
                                   "[ $RANK = 0 ] || exec sleep 100; kill -KILL $$");
    options.run.failure.max_failures = 2;
    options.run.failure.controller_failure_limit = 0; // a death is no failed start
    (void)ProgramTrainer(options).fit();
    const std::string ports = storage::read_file(storage.path() / "0");
    std::set<std::string> all;
    std::istringstream lines(ports);
    for (std::string port; lines >> port;) {
        all.insert(port);
    }
    CHECK(all.size() == 3);
}

TEST_CASE("Program.ranks_join_and_leave_within_a_range" * doctest::timeout(120)) {
    const test::Directory storage("program-range");
    const auto hosts = (storage.path() / "hosts").string();
    test::write(hosts, "localhost slots=2\n");
    // The first start finds room for more, the second loses a rank and room, the third ends.
    auto options = script(storage, "echo $WORLD_SIZE >> $STORAGE/$RANK; "
                                   "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; "
                                   "[ $RANK = 1 ] || { trap '' TERM; exec sleep 1000; }; "
                                   "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; "
                                   "then echo localhost slots=5 > $HOSTS; exec sleep 1000; "
                                   "else until [ -s $STORAGE/2 ]; do sleep 0.01; done; "
                                   "echo localhost slots=3 > $HOSTS; kill -KILL $$; fi");
    options.environment["HOSTS"] = hosts;
    options.scaling = {.num_workers = {2, 4},
                       .mpirun_args = {"--hostfile", hosts},
                       .elastic_resize_monitor_interval_s = 0.05};
    options.run.failure.max_failures = 1; // joining is not a failure
    options.run.failure.preemption_grace_s = 0;
    (void)ProgramTrainer(options).fit();
    CHECK(storage::read_file(storage.path() / "1") == "2\n4\n3\n");
    CHECK(storage::read_file(storage.path() / "2") == "4\n3\n");
}
