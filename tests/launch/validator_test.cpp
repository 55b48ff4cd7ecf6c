// SPDX-License-Identifier: Apache-2.0
// Validator and its helper on real processes: this program is also the helper that it starts.
#include "support/thrown.hpp"

#include <rtrain/launch/validator.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

using namespace rtrain;
using launch::Helper;
using launch::ValidationRequest;
using launch::Validator;
using launch::Verdict;
using Seconds = std::chrono::duration<double>;
using test::contains;

namespace {

void write_text(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file.string() + ".new") << text;
    std::filesystem::rename(file.string() + ".new", file);
}

std::string text_of(const Config& config, const char* key) {
    return std::string(config.at(key).as_string());
}

[[noreturn]] void sleep_for_ever() {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
}

/// What the helper does, by the task's "do".
Config validate(const Checkpoint& checkpoint, const Config& task) {
    const std::string what = text_of(task, "do");
    if (task.contains("pid file")) {
        write_text(text_of(task, "pid file"), std::to_string(::getpid()));
    }
    if (what == "score") {
        return {{"score", task.at("score")},
                {"checkpoint", checkpoint.path.string()},
                {"pid", ::getpid()}};
    }
    if (what == "throw") {
        throw std::runtime_error("no luck\nat all");
    }
    if (what == "throw a number") {
        throw 1;
    }
    if (what == "crash") {
        std::signal(SIGSEGV, SIG_DFL); // sanitizers handle it
        std::raise(SIGSEGV);
    }
    if (what == "exit") {
        std::exit(7);
    }
    if (what == "print") {
        std::cout << "{\"id\":1,\"metrics\":{\"score\":-1}}\n" << std::string(200000, 'x') << '\n';
        std::cout << std::flush;
        return {{"score", 1}};
    }
    if (what == "sleep") {
        sleep_for_ever();
    }
    if (what == "have a child") {
        const pid_t child = ::fork();
        if (child == 0) {
            sleep_for_ever();
        }
        write_text(text_of(task, "child file"), std::to_string(child));
        sleep_for_ever();
    }
    if (what == "say") {
        const std::string text = text_of(task, "text");
        (void)::send(Helper::socket, text.data(), text.size(), 0);
        sleep_for_ever();
    }
    if (what == "say without end") {
        const std::string part(1 << 20, 'x');
        for (;;) {
            (void)::send(Helper::socket, part.data(), part.size(), 0);
        }
    }
    if (what == "close the socket") {
        ::close(Helper::socket);
        sleep_for_ever();
    }
    if (what == "large") {
        return {{"text", std::string(4 << 20, 'y')}, {"size", text_of(task, "text").size()}};
    }
    if (what == "not finite") {
        return {{"nan", std::nan("")}, {"third", 1.0 / 3}};
    }
    if (what == "tell about yourself") {
        boost::json::array ranks;
        for (char** variable = environ; *variable != nullptr; ++variable) {
            if (launch::is_rank_variable(*variable)) {
                ranks.emplace_back(*variable);
            }
        }
        const char* const mine = std::getenv("TEST_VARIABLE");
        std::error_code ignored;
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        ::sched_getaffinity(0, sizeof cpus, &cpus);
        boost::json::array open;
        for (int descriptor = 3; descriptor < 256; ++descriptor) {
            if (::fcntl(descriptor, F_GETFD) >= 0) {
                open.emplace_back(descriptor);
            }
        }
        return {{"rank variables", ranks},
                {"variable", mine != nullptr ? mine : ""},
                {"parent variable", std::getenv(Helper::parent_variable) != nullptr},
                {"stdin", std::filesystem::read_symlink("/proc/self/fd/0", ignored).string()},
                {"group", ::getpgid(0) == ::getpid()},
                {"niceness", ::getpriority(PRIO_PROCESS, 0)},
                {"cpus", CPU_COUNT(&cpus)},
                {"open", open}};
    }
    throw std::runtime_error("unknown task");
}

launch::HelperProgram this_program(const std::string& start = "serve") {
    return {{std::filesystem::read_symlink("/proc/self/exe").string(), start},
            {{"TEST_VARIABLE", "set"}}};
}

/// A validator that remembers what it says.
struct Validation {
    std::vector<Verdict> ended;
    Validator validator;

    explicit Validation(launch::HelperProgram program = this_program())
        : validator(std::move(program),
                    [this](Verdict verdict) { ended.push_back(std::move(verdict)); }) {}
    void submit(ValidationRequest request) { validator.submit(std::move(request)); }
};

/// The verdict on one task.
Verdict verdict_of(Validation& validation, Config task,
                   std::optional<double> timeout_s = std::nullopt) {
    static std::int64_t id = 100;
    validation.ended.clear();
    validation.submit(
        {.id = ++id, .checkpoint = "/c", .task = std::move(task), .timeout_s = timeout_s});
    REQUIRE(validation.validator.wait_all(60));
    REQUIRE(validation.ended.size() == 1);
    CHECK(validation.ended[0].id == id);
    return validation.ended[0];
}

/// Why there are no metrics; "" when there are.
std::string why(const Verdict& verdict) {
    return verdict.failure ? verdict.failure->text() : "";
}

/// The number in a file that another process writes.
pid_t pid_in(const std::filesystem::path& file) {
    for (int tries = 0; tries < 600; ++tries) {
        if (std::filesystem::exists(file)) {
            pid_t pid = 0;
            std::ifstream(file) >> pid;
            return pid;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw std::runtime_error("no process has written " + file.string());
}

/// Whether a process has gone, or is a corpse that init has not buried yet, within 10 s.
bool ends(pid_t pid) {
    for (int tries = 0; tries < 200; ++tries) {
        std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
        std::string number;
        std::string name;
        std::string state;
        if (!(stat >> number >> name >> state) || state == "Z") {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

/// A directory that vanishes.
struct Directory {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("rtrain-validator-" + std::to_string(::getpid()));
    Directory() {
        std::filesystem::remove_all(path);
        std::filesystem::create_directory(path);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { std::filesystem::remove_all(path); }
    [[nodiscard]] std::string file(const char* name) const { return (path / name).string(); }
};

const Config good{{"do", "score"}, {"score", 5}};

} // namespace

TEST_CASE("Validator.metrics_come_back_in_the_order_of_requests") {
    Validation validation;
    CHECK(validation.validator.wait_all(0));
    for (int id = 0; id < 5; ++id) {
        validation.submit({.id = id,
                           .checkpoint = "/runs/c" + std::to_string(id),
                           .task = {{"do", "score"}, {"score", id * 10}}});
    }
    REQUIRE(validation.validator.wait_all(60));
    const auto& finished = validation.ended;
    REQUIRE(finished.size() == 5);
    for (int id = 0; id < 5; ++id) {
        const Verdict& verdict = finished[static_cast<std::size_t>(id)];
        CHECK(verdict.id == id);
        CHECK(verdict.status == CheckpointStatus::validated);
        CHECK(!verdict.failure);
        CHECK(verdict.metrics.at("score") == id * 10);
        CHECK(text_of(verdict.metrics, "checkpoint") == "/runs/c" + std::to_string(id));
        CHECK(verdict.metrics.at("pid") == finished[0].metrics.at("pid")); // one process
    }
    CHECK(finished[0].metrics.at("pid") != ::getpid());
}

TEST_CASE("Validator.submit_does_not_wait") {
    const Directory directory;
    Validation validation;
    validation.submit({.id = 1,
                       .checkpoint = "/c",
                       .task = {{"do", "sleep"}, {"pid file", directory.file("pid")}}});
    validation.submit({.id = 2, .checkpoint = "/c", .task = good});
    (void)pid_in(directory.file("pid"));
    CHECK(!validation.validator.wait_all(0.1));
    CHECK(validation.ended.empty()); // the second one waits for its turn
}

TEST_CASE("Validator.failures_concern_one_validation") {
    Validation validation;
    const auto first = verdict_of(validation, good);
    const auto failed = [&](const char* what) {
        const Verdict verdict = verdict_of(validation, {{"do", what}});
        CHECK(verdict.status == CheckpointStatus::validation_failed);
        CHECK(verdict.metrics.empty());
        return why(verdict);
    };
    CHECK(failed("throw") == "the validation function threw: no luck\nat all");
    CHECK(contains(failed("throw a number"), "not derived from std::exception"));
    // What it throws does not end the process.
    CHECK(verdict_of(validation, good).metrics.at("pid") == first.metrics.at("pid"));

    const auto crashed = failed("crash");
    CHECK(contains(crashed, "was killed by signal 11 (Segmentation fault)"));
    CHECK(contains(crashed, "RT-L5"));
    const auto second = verdict_of(validation, good);
    CHECK(second.status == CheckpointStatus::validated);
    CHECK(second.metrics.at("pid") != first.metrics.at("pid"));

    CHECK(contains(failed("exit"), "ended with exit code 7"));
    CHECK(contains(failed("close the socket"), "RT-L5"));
    CHECK(verdict_of(validation, good).status == CheckpointStatus::validated);
}

TEST_CASE("Validator.a_helper_that_dies_between_requests_is_replaced") {
    Validation validation;
    const auto pid = verdict_of(validation, good).metrics.at("pid").to_number<pid_t>();
    ::kill(pid, SIGKILL);
    REQUIRE(ends(pid));
    const auto next = verdict_of(validation, good);
    CHECK(next.status == CheckpointStatus::validated);
    CHECK(next.metrics.at("pid") != pid);
}

TEST_CASE("Validator.slow_validations_end_at_their_limit") {
    const Directory directory;
    Validation validation;
    const auto begin = std::chrono::steady_clock::now();
    const auto slow =
        verdict_of(validation, {{"do", "sleep"}, {"pid file", directory.file("pid")}}, 0.5);
    CHECK(slow.status == CheckpointStatus::validation_timeout);
    REQUIRE(slow.failure);
    CHECK(contains(slow.failure->message, "longer than 0.5 s"));
    CHECK(slow.failure->code.text() == "RT-L6");
    CHECK(Seconds(std::chrono::steady_clock::now() - begin).count() < 20);
    CHECK(ends(pid_in(directory.file("pid"))));
    CHECK(verdict_of(validation, good, 60).status == CheckpointStatus::validated);
    CHECK(verdict_of(validation, good, 1e300).status == CheckpointStatus::validated);
    // With what it has started.
    const auto parent = verdict_of(
        validation, {{"do", "have a child"}, {"child file", directory.file("child")}}, 5);
    CHECK(parent.status == CheckpointStatus::validation_timeout);
    CHECK(ends(pid_in(directory.file("child"))));
}

TEST_CASE("Validator.impossible_requests_are_refused") {
    Validation validation;
    for (const double limit : {0.0, -1.0, std::nan("")}) {
        CHECK_THROWS_WITH_AS(validation.submit({.task = good, .timeout_s = limit}),
                             doctest::Contains("RT-C17"), ConfigError);
    }
    CHECK_THROWS_WITH_AS(
        validation.submit({.task = {{"text", std::string(Helper::max_line, 'x')}}}),
        doctest::Contains("RT-C17"), ConfigError);
    CHECK(validation.validator.wait_all(0));
}

TEST_CASE("Validator.standard_output_is_no_part_of_the_protocol") {
    Validation validation(this_program("serve-quietly"));
    const auto verdict = verdict_of(validation, {{"do", "print"}});
    CHECK(verdict.status == CheckpointStatus::validated);
    CHECK(verdict.metrics.at("score") == 1);
}

TEST_CASE("Validator.large_tasks_and_metrics_pass") {
    Validation validation;
    const auto verdict =
        verdict_of(validation, {{"do", "large"}, {"text", std::string(8 << 20, 'z')}});
    CHECK(verdict.status == CheckpointStatus::validated);
    CHECK(text_of(verdict.metrics, "text") == std::string(4 << 20, 'y'));
    CHECK(verdict.metrics.at("size") == 8 << 20);
}

TEST_CASE("Validator.numbers_arrive_to_the_bit") {
    Validation validation;
    const auto verdict = verdict_of(validation, {{"do", "not finite"}});
    CHECK(verdict.metrics.at("nan").is_null());
    CHECK(verdict.metrics.at("third").as_double() == 1.0 / 3);
}

TEST_CASE("Validator.malformed_answers_fail_the_validation") {
    Validation validation;
    for (const char* const text : {"x\n", "\n", "[]\n", "{}\n", "{\"id\":-7,\"metrics\":{}}\n",
                                   "{\"ready\":true}\n", "{\"metrics\":{}}\n"}) {
        CAPTURE(text);
        const auto verdict = verdict_of(validation, {{"do", "say"}, {"text", text}});
        CHECK(verdict.status == CheckpointStatus::validation_failed);
        CHECK(contains(why(verdict), "RT-L5"));
    }
    const auto endless = verdict_of(validation, {{"do", "say without end"}});
    CHECK(endless.status == CheckpointStatus::validation_failed);
    CHECK(contains(why(endless), "more than"));
    CHECK(verdict_of(validation, good).status == CheckpointStatus::validated);
}

TEST_CASE("Validator.a_helper_that_never_serves_fails_the_validation") {
    for (const auto& [start, what] :
         {std::pair{"leave", "ended with exit code 0"}, {"die", "was killed by signal 6"}}) {
        Validation validation(this_program(start));
        const auto verdict = verdict_of(validation, good);
        CHECK(verdict.status == CheckpointStatus::validation_failed);
        CHECK(contains(why(verdict), what));
        CHECK(contains(why(verdict), "RT-L4"));
    }
    Validation hanging(this_program("hang"));
    CHECK(verdict_of(hanging, good, 0.5).status == CheckpointStatus::validation_timeout);
    Validation missing({{"/nowhere/program"}, {}});
    const auto verdict = verdict_of(missing, good);
    CHECK(verdict.status == CheckpointStatus::validation_failed);
    CHECK(contains(why(verdict), "cannot start"));
    CHECK(contains(why(verdict), "RT-L4"));
}

TEST_CASE("Validator.the_helper_is_a_process_of_its_own") {
    ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    ::setenv("PMIX_RANK", "0", 1);
    ::setenv("SLURM_PROCID", "0", 1);
    const int inherited = ::dup(STDERR_FILENO); // not close-on-exec
    cpu_set_t before;
    ::sched_getaffinity(0, sizeof before, &before);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
        }
    }
    ::sched_setaffinity(0, sizeof one, &one); // as mpirun binds ranks
    {
        Validation validation;
        const auto told = verdict_of(validation, {{"do", "tell about yourself"}}).metrics;
        CHECK(told.at("rank variables").as_array().empty());
        CHECK(told.at("variable") == "set");
        CHECK(told.at("parent variable") == false);
        CHECK(told.at("stdin") == "/dev/null");
        CHECK(told.at("group") == true);
        CHECK(told.at("niceness").to_number<int>() >= Helper::niceness);
        CHECK(told.at("cpus").to_number<int>() >= CPU_COUNT(&before));
        CHECK(told.at("open") == boost::json::array({Helper::socket}));
    }
    ::sched_setaffinity(0, sizeof before, &before);
    ::close(inherited);
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
        ::unsetenv(name);
    }
}

TEST_CASE("Validator.its_end_ends_the_helper") {
    const Directory directory;
    for (const char* const what : {"sleep", "score"}) { // at work, and idle
        std::filesystem::remove(directory.file("pid"));
        pid_t pid = 0;
        {
            Validation validation;
            validation.submit(
                {.task = {{"do", what}, {"score", 1}, {"pid file", directory.file("pid")}}});
            pid = pid_in(directory.file("pid"));
            if (what == std::string("score")) {
                REQUIRE(validation.validator.wait_all(60));
            }
        }
        CHECK(::kill(pid, 0) == -1); // already, and buried
    }
}

TEST_CASE("Validator.killing_the_parent_leaves_no_helper") {
    const Directory directory;
    for (const char* const what : {"sleep", "score"}) {
        std::filesystem::remove(directory.file("pid"));
        const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
        const std::string pid_file = directory.file("pid");
        const pid_t parent = ::fork();
        if (parent == 0) {
            ::execl(self.c_str(), self.c_str(), "parent", what, pid_file.c_str(), nullptr);
            ::_exit(127);
        }
        const pid_t helper = pid_in(pid_file);
        REQUIRE(::kill(helper, 0) == 0);
        ::kill(parent, SIGKILL);
        int status = 0;
        REQUIRE(::waitpid(parent, &status, 0) == parent);
        CHECK(WIFSIGNALED(status));
        CHECK(ends(helper));
    }
}

int main(int argc, char** argv) {
    const std::string start = argc > 1 ? argv[1] : "";
    if (Helper::is_this_process()) {
        if (start == "hang") {
            sleep_for_ever();
        } else if (start == "die") {
            std::abort();
        } else if (start == "serve-quietly") {
            ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
        } else if (start == "leave") {
            return 0;
        }
        Helper::serve(validate);
        return 0;
    }
    if (start == "parent") {
        Validation validation;
        validation.submit({.task = {{"do", argv[2]}, {"score", 1}, {"pid file", argv[3]}}});
        sleep_for_ever();
    }
    return doctest::Context(argc, argv).run();
}
