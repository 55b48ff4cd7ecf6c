// SPDX-License-Identifier: Apache-2.0
// The control channel on real sockets and processes: this program is also the ranks, the driver and
// the strangers that it starts.
#include "support/thrown.hpp"

#include <rtrain/base/failure_json.hpp>
#include <rtrain/launch/control/bar_event.hpp>
#include <rtrain/launch/control/driver_link.hpp>
#include <rtrain/launch/control/server.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/child.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <boost/asio/post.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

using namespace rtrain;
using namespace rtrain::launch;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using test::contains;

namespace {

/// Far above what anything here takes; only a hang comes to it.
constexpr std::chrono::seconds long_enough{60};

bool eventually(const std::function<bool()>& condition) {
    for (const auto deadline = Clock::now() + long_enough; Clock::now() < deadline;) {
        if (condition()) {
            return true;
        }
        std::this_thread::sleep_for(5ms);
    }
    return condition();
}

/// Also where there is no test case: in the other processes.
void must(bool condition, const char* what) {
    if (!condition) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::abort();
    }
}

/// A directory of mode 0700 that goes with the object.
class Directory {
public:
    Directory() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "rtrain-control-XXXXXX").string();
        must(::mkdtemp(pattern.data()) != nullptr, "a directory is made");
        path_ = pattern;
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { std::filesystem::remove_all(path_); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// A server in a thread of its own, and all that it has told.
class Driver {
public:
    explicit Driver(int size, bool remote = false, int attempt = 1)
        : server_(std::in_place, io_,
                  ControlServer::Options{.attempt = attempt,
                                         .size = size,
                                         .directory = directory_.path(),
                                         .remote = remote,
                                         .hosts = {}},
                  ControlServer::Handlers{.joined =
                                              [this](const Hello& hello) {
                                                  const std::lock_guard lock(mutex_);
                                                  joined_[hello.rank] = hello;
                                              },
                                          .status =
                                              [this](const RankReport& report) {
                                                  const std::lock_guard lock(mutex_);
                                                  last_[report.rank] = report;
                                                  ++reports_[report.rank];
                                              },
                                          .event =
                                              [this](int rank, const RankEvent& event) {
                                                  const std::lock_guard lock(mutex_);
                                                  events_[rank].push_back(event);
                                              },
                                          .left =
                                              [this](int rank) {
                                                  const std::lock_guard lock(mutex_);
                                                  left_.push_back(rank);
                                              },
                                          .refused =
                                              [this](const std::string& why) {
                                                  const std::lock_guard lock(mutex_);
                                                  refused_.push_back(why);
                                              }}),
          variables_(server_->variables()), thread_([this] { io_.run(); }) {}
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    ~Driver() {
        boost::asio::post(io_, [this] { server_.reset(); });
        thread_.join(); // nothing is left to do
    }

    [[nodiscard]] const std::map<std::string, std::string>& variables() const { return variables_; }
    [[nodiscard]] ControlAddress address() const {
        return *ControlAddress::parse(variables_.at(ControlAddress::variable));
    }
    [[nodiscard]] const std::string& token() const {
        return variables_.at(ControlAddress::token_variable);
    }
    [[nodiscard]] std::filesystem::path directory() const { return directory_.path(); }

    void send(int rank, const DriverEvent& event) {
        boost::asio::post(io_, [this, rank, event] { server_->send(rank, event); });
    }

    /// It reads nothing for some time.
    void pause(std::chrono::milliseconds time) {
        boost::asio::post(io_, [time] { std::this_thread::sleep_for(time); });
    }

    [[nodiscard]] std::optional<Hello> joined(int rank) const {
        const std::lock_guard lock(mutex_);
        const auto found = joined_.find(rank);
        return found != joined_.end() ? std::optional(found->second) : std::nullopt;
    }
    [[nodiscard]] int reports(int rank) const {
        const std::lock_guard lock(mutex_);
        const auto found = reports_.find(rank);
        return found != reports_.end() ? found->second : 0;
    }
    [[nodiscard]] RankReport last(int rank) const {
        const std::lock_guard lock(mutex_);
        return last_.at(rank);
    }
    [[nodiscard]] std::vector<RankEvent> events(int rank) const {
        const std::lock_guard lock(mutex_);
        const auto found = events_.find(rank);
        return found != events_.end() ? found->second : std::vector<RankEvent>();
    }
    [[nodiscard]] std::vector<int> left() const {
        const std::lock_guard lock(mutex_);
        return left_;
    }
    [[nodiscard]] std::vector<std::string> refused() const {
        const std::lock_guard lock(mutex_);
        return refused_;
    }
    [[nodiscard]] bool has_refused(const std::string& why) const {
        const auto all = refused();
        return std::any_of(all.begin(), all.end(),
                           [&](const std::string& one) { return contains(one, why); });
    }

private:
    Directory directory_;
    mutable std::mutex mutex_;
    std::map<int, Hello> joined_;
    std::map<int, RankReport> last_;
    std::map<int, int> reports_;
    std::map<int, std::vector<RankEvent>> events_;
    std::vector<int> left_;
    std::vector<std::string> refused_;
    boost::asio::io_context io_;
    std::optional<ControlServer> server_;
    std::map<std::string, std::string> variables_;
    std::thread thread_;
};

/// This process as a rank.
std::unique_ptr<DriverLink> link_with(std::map<std::string, std::string> variables) {
    for (const auto& [name, value] : variables) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    return DriverLink::from_environment();
}

/// As if the rank were on another machine.
std::map<std::string, std::string> from_elsewhere(const Driver& driver) {
    auto variables = driver.variables();
    ControlAddress address = driver.address();
    address.machine = "another";
    variables[ControlAddress::variable] = address.text();
    return variables;
}

/// A connection that says what it likes.
class Stranger {
public:
    explicit Stranger(const std::filesystem::path& path)
        : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const UnixPath place(path);
        const sockaddr_un address = place.address();
        connected_ =
            ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    explicit Stranger(const std::string& tcp)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port =
            htons(static_cast<std::uint16_t>(std::stoi(tcp.substr(tcp.rfind(':') + 1))));
        ::inet_pton(AF_INET, tcp.substr(0, tcp.rfind(':')).c_str(), &address.sin_addr);
        connected_ =
            ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    Stranger(Stranger&& other) noexcept
        : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;
    ~Stranger() {
        if (socket_ >= 0) {
            ::close(socket_);
        }
    }

    [[nodiscard]] bool connected() const { return connected_; }

    /// False when the other side has closed.
    bool say(const std::string& text) { // NOLINT: it changes what the other side knows
        for (std::size_t sent = 0; sent < text.size();) {
            const ssize_t more =
                ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
            if (more <= 0) {
                return false;
            }
            sent += static_cast<std::size_t>(more);
        }
        return true;
    }
    /// What it hears until the other side closes; empty when it does not close.
    [[nodiscard]] std::optional<std::string> hear_to_the_end() const {
        std::string heard;
        for (;;) {
            pollfd state{socket_, POLLIN, 0};
            if (::poll(&state, 1, 60'000) <= 0) {
                return std::nullopt;
            }
            std::array<char, 4096> part{};
            const ssize_t got = ::recv(socket_, part.data(), part.size(), 0);
            if (got <= 0) {
                return heard;
            }
            heard.append(part.data(), static_cast<std::size_t>(got));
        }
    }
    [[nodiscard]] bool is_turned_away() const { return hear_to_the_end() == ""; }

private:
    int socket_;
    bool connected_ = false;
};

/// A well-behaved rank 0 beside what a test does: it must not notice.
class Bystander {
public:
    explicit Bystander(Driver& driver) : driver_(driver), link_(link_with(driver.variables())) {
        link_->connect(0, 2);
        REQUIRE(eventually([&] { return driver_.reports(0) > 0; }));
    }
    void check_that_it_goes_on() {
        const int before = driver_.reports(0);
        CHECK(eventually([&] { return driver_.reports(0) > before + 1; }));
        link_->say(event::Saved{.checkpoint = "checkpoint_000001", .iteration = 1});
        CHECK(link_->flush(long_enough));
        CHECK(eventually([&] { return !driver_.events(0).empty(); }));
        driver_.send(0, Decision{.restart = true, .delay_s = 0.5, .reason = "a test"});
        CHECK(link_->answers().wait_for_decision(long_enough).has_value());
        CHECK(driver_.left().empty());
    }

private:
    Driver& driver_;
    std::unique_ptr<DriverLink> link_;
};

std::string frame_of(std::string text, std::optional<std::uint32_t> length = std::nullopt) {
    const std::uint32_t claimed = length.value_or(static_cast<std::uint32_t>(text.size()));
    std::string frame;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        frame.push_back(static_cast<char>((claimed >> shift) & 0xffU));
    }
    return frame + std::move(text);
}

/// Another process of this program.
class Process {
public:
    /// `relayed`: what it says goes where our own output goes.
    explicit Process(std::vector<std::string> words,
                     std::map<std::string, std::string> variables = {}, bool relayed = false) {
        words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
        const auto settings = environment_with(variables);
        const auto arguments = pointers_to(words);
        const auto environment = pointers_to(settings);
        int ends[2];
        must(::pipe2(ends, O_CLOEXEC) == 0, "a pipe is made");
        posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        if (!relayed) {
            ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
            ::posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
        }
        must(::posix_spawn(&pid_, arguments[0], &files, nullptr, arguments.data(),
                           environment.data()) == 0,
             "a process is started");
        ::posix_spawn_file_actions_destroy(&files);
        ::close(ends[1]);
        output_ = ends[0];
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        kill(SIGKILL);
        (void)wait();
        ::close(output_);
    }

    [[nodiscard]] pid_t pid() const { return pid_; }
    void kill(int signal) const {
        if (!ended_) {
            ::kill(pid_, signal);
        }
    }
    /// As waitpid() gives it.
    int wait() {
        if (!ended_) {
            (void)::waitpid(pid_, &status_, 0);
            ended_ = true;
        }
        return status_;
    }
    /// Of it and of the processes that it has started, until all have ended.
    [[nodiscard]] std::string output() const {
        std::string text;
        std::array<char, 4096> part{};
        for (ssize_t got = 1; got > 0;) {
            got = ::read(output_, part.data(), part.size());
            text.append(part.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        }
        return text;
    }

private:
    pid_t pid_ = -1;
    int output_ = -1;
    int status_ = 0;
    bool ended_ = false;
};

std::string text_of(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// What the other processes do.

/// A rank that says what it has found in its environment, and then waits for the driver's word.
int be_rank(int rank, int size) {
    const auto link = DriverLink::from_environment();
    must(link != nullptr, "there is a driver");
    const bool hidden = std::getenv(ControlAddress::token_variable) == nullptr &&
                        std::getenv(ControlAddress::variable) == nullptr &&
                        !contains(text_of("/proc/self/environ"), "machine=");
    ProcessContext::current().status.enter(Phase::training);
    link->on_preempt([&](double grace_s) {
        link->say(event::LastWords{
            {.code = ErrorCode::parse("grace"), .message = std::to_string(grace_s)}});
    });
    link->say(event::Training{hidden ? "hidden" : "shown"});
    link->connect(rank, size);
    const auto decision = link->answers().wait_for_decision(long_enough);
    if (!decision) {
        return 3;
    }
    link->say(event::Saved{.checkpoint = decision->reason, .iteration = 3});
    link->say(event::Done{});
    return 0;
}

/// A driver that starts one rank and lives until it is killed.
int be_driver(bool remote) {
    Driver driver(1, remote);
    const Process rank({"--rank", "0", "1"}, remote ? from_elsewhere(driver) : driver.variables(),
                       true);
    if (eventually([&] { return driver.reports(0) > 0; })) {
        std::printf("rank %d\n", rank.pid());
        std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
}

/// Another user, who knows all.
int be_stranger(const std::string& path, const std::string& token) {
    if (::setuid(65534) != 0) {
        return 2;
    }
    Stranger stranger{std::filesystem::path(path)};
    if (!stranger.connected()) {
        std::printf("cannot connect: %s\n", std::strerror(errno));
        return 1;
    }
    stranger.say(token + encode(Hello{.rank = 1, .size = 2, .attempt = 1, .pid = 1, .host = "x"}));
    std::printf("%s\n", stranger.is_turned_away() ? "turned away" : "let in");
    return 0;
}

} // namespace

TEST_CASE("Control.messages_come_back") {
    const auto through = [](const std::string& frame) {
        FrameReader reader;
        reader.append(frame);
        return reader.next().value();
    };
    const Hello hello{.rank = 3, .size = 4, .attempt = 7, .pid = 12345, .host = "höst"};
    CHECK(std::get<Hello>(parse_from_rank(through(encode(hello)))) == hello);
    for (const Phase phase : {Phase::starting, Phase::training, Phase::saving, Phase::waiting,
                              Phase::finishing, Phase::done}) {
        const RankReport report{.rank = 3,
                                .phase = phase,
                                .progress = ~std::uint64_t{0},
                                .steps = 1,
                                .collectives = std::uint64_t{1} << 63U,
                                .waiting_in = "all_reduce",
                                .cpu_s = 0.1,
                                .reading = "rows.csv, rows 0 to 9",
                                .output_blocked = phase == Phase::training};
        CHECK(std::get<RankReport>(parse_from_rank(through(encode(report)))) == report);
    }
}

TEST_CASE("Control.events_have_the_same_text_in_every_version") {
    const auto text_in = [](const std::string& frame) {
        FrameReader reader;
        reader.append(frame);
        return reader.next().value();
    };
    const Failure failure{.kind = Failure::Kind::died,
                          .code = "RT-L2",
                          .rank = 3,
                          .message = "why",
                          .from_outside = true};
    const std::vector<std::pair<RankEvent, std::string>> of_ranks{
        {event::Training{std::string("a\0\n\"b", 5)},
         R"({"checkpoint":"a\u0000\n\"b","kind":"training"})"},
        {event::Failed{.failure = failure, .checkpoint = "c", .lost = {0, 11}},
         R"({"code":"RT-L2","message":"why","how":"died","rank":3,"from_outside":true,)"
         R"("checkpoint":"c","lost":[0,11],"kind":"failed"})"},
        {event::Ending{"{}"}, R"({"text":"{}","kind":"ending"})"},
        {event::LastWords{{.code = "RT-T1", .message = "why"}},
         R"({"code":"RT-T1","message":"why","kind":"last_words"})"},
        {event::Saved{.checkpoint = "c", .iteration = 12},
         R"({"checkpoint":"c","iteration":12,"kind":"saved"})"},
        {console::Progress{.epoch = 1,
                           .epochs = 2,
                           .done = 3,
                           .total = 4,
                           .elapsed_s = 0.5,
                           .rate = 2.5,
                           .metrics = "loss=1"},
         R"({"epoch":1,"epochs":2,"done":3,"total":4,"elapsed_s":5E-1,"rate":2.5E0,)"
         R"("metrics":"loss=1","kind":"bar"})"},
        {event::Shown{"line"}, R"({"text":"line","kind":"shown"})"},
        {event::Stack{"#0"}, R"({"text":"#0","kind":"stack"})"},
        {event::RunEnded{}, R"({"kind":"run_ended"})"},
        {event::RunBegins{"{}"}, R"({"run":"{}","kind":"run_begins"})"},
        {event::Address{.host = "10.0.0.1", .port = 4711},
         R"({"host":"10.0.0.1","port":4711,"kind":"address"})"},
        {event::Answer{"{}"}, R"({"text":"{}","kind":"answer"})"},
        {event::Done{}, R"({"kind":"done"})"},
        {event::Report{.call = 1,
                       .metrics = {{"loss", 0.5}},
                       .has_files = true,
                       .files = {"a"},
                       .checkpoint = "best",
                       .metadata = {{"epoch", 1}}},
         R"({"call":1,"metrics":{"loss":5E-1},"has_files":true,"in_background":false,"files":["a"],)"
         R"("checkpoint":"best","metadata":{"epoch":1},"code":"","error":"","kind":"report"})"},
        {event::Stored{.call = 1, .shared = {{"a", "1 2"}}},
         R"({"call":1,"shared":{"a":"1 2"},"code":"","error":"","kind":"stored"})"},
        {event::Meet{.call = 2, .function = "barrier"},
         R"({"call":2,"function":"barrier","text":"","kind":"meet"})"},
        {event::Log{.metrics = {{"loss", 0.5}}}, R"({"metrics":{"loss":5E-1},"kind":"log"})"}};
    const std::vector<std::pair<DriverEvent, std::string>> of_driver{
        {event::Welcome{}, R"({"kind":"welcome"})"},
        {event::Refused{"why"}, R"({"why":"why","kind":"refused"})"},
        {event::Ping{}, R"({"kind":"ping"})"},
        {event::Preempt{1.0 / 3}, R"({"grace_s":3.333333333333333E-1,"kind":"preempt"})"},
        {event::Dump{}, R"({"kind":"dump"})"},
        {event::Addresses{.hosts = {"10.0.0.1", "::1"}, .ports = {4711, 4712}},
         R"({"hosts":["10.0.0.1","::1"],"ports":[4711,4712],"kind":"addresses"})"},
        {event::Call{.number = 3, .name = "train", .arguments = "{}"},
         R"({"number":3,"name":"train","arguments":"{}","kind":"call"})"},
        {event::End{}, R"({"kind":"end"})"},
        {Decision{.restart = true, .delay_s = 2, .skip = {"a", "b"}, .reason = "why"},
         R"({"restart":true,"delay_s":2E0,"skip":["a","b"],"reason":"why","kind":"decision"})"},
        {event::Store{.call = 1,
                      .run = "/r",
                      .attempt = "7",
                      .checkpoint = "best",
                      .files = {"a"},
                      .shared = {"a"}},
         R"({"call":1,"run":"/r","attempt":"7","checkpoint":"best","files":["a"],"shared":["a"],)"
         R"("kind":"store"})"},
        {event::Reported{.call = 1, .iteration = 3, .checkpoint = "/r/best", .stop = "loss"},
         R"({"call":1,"iteration":3,"checkpoint":"/r/best","stop":"loss","kind":"reported"})"},
        {event::Met{.call = 2, .text = "x"}, R"({"call":2,"text":"x","kind":"met"})"},
        {event::CallFailed{.call = 2, .code = "RT-E47", .error = "why"},
         R"({"call":2,"code":"RT-E47","error":"why","kind":"call_failed"})"}};
    CHECK(of_ranks.size() == std::variant_size_v<RankEvent>);
    CHECK(of_driver.size() == std::variant_size_v<DriverEvent>);
    for (const auto& [event, text] : of_ranks) {
        CHECK(text_in(encode(event)) == text);
        CHECK(std::get<RankEvent>(parse_from_rank(text)) == event);
        CHECK_THROWS_WITH_AS((void)parse_from_driver(text), doctest::Contains("the wrong side"),
                             LaunchError);
    }
    for (const auto& [event, text] : of_driver) {
        CHECK(text_in(encode(event)) == text);
        CHECK(parse_from_driver(text) == event);
        CHECK_THROWS_WITH_AS((void)parse_from_rank(text), doctest::Contains("the wrong side"),
                             LaunchError);
    }
}

TEST_CASE("Control.a_bar_comes_back") {
    const auto through = [](const console::Progress& now) {
        FrameReader reader;
        reader.append(encode(to_event(now)));
        const auto heard = std::get<RankEvent>(parse_from_rank(reader.next().value()));
        return std::get<console::Progress>(heard);
    };
    const console::Progress now{.epoch = 3,
                                .epochs = 10,
                                .done = 450,
                                .total = 1000,
                                .elapsed_s = 12,
                                .rate = 36.5,
                                .metrics = "loss=0.1, \"odd\"=2"};
    CHECK(through(now) == now);
    CHECK(through({}) == console::Progress{});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(through({.done = -1, .elapsed_s = -1, .rate = nan}) == console::Progress{});
}

TEST_CASE("Control.texts_are_made_fit_for_a_frame") {
    const auto sent = [](const std::string& text) {
        FrameReader reader;
        reader.append(encode(RankEvent(event::Stack{text})));
        const auto heard = std::get<RankEvent>(parse_from_rank(reader.next().value()));
        return std::get<event::Stack>(heard).text;
    };
    CHECK(sent("caf\xe9 \xff\xc0\xaf \xed\xa0\x80 \xe2\x82\xac") == "caf? ??? ??? \xe2\x82\xac");
    const std::string large = sent(std::string(4 << 20, 'x'));
    CHECK(large.size() > max_frame / 8);
    const std::string euros = [] {
        std::string text;
        for (int i = 0; i < 1'000'000; ++i) {
            text += "\xe2\x82\xac";
        }
        return text;
    }();
    const std::string cut = sent(euros);
    CHECK(cut.size() > 1000);
    CHECK(cut == euros.substr(0, cut.size()));
    CHECK(cut.size() % 3 == 0);
    CHECK(sent(std::string(2 << 20, '\x01')).size() > 1000); // six bytes each
}

TEST_CASE("Control.failures_of_ranks_that_were_built_before_are_read") {
    const Failure failure{.code = "RT-T1", .message = "why"};
    const auto heard = [](const std::string& text) {
        return std::get<RankEvent>(parse_from_rank(text));
    };
    CHECK(heard(R"({"kind":"failed","code":"RT-T1","message":"why","checkpoint":"","lost":[]})") ==
          RankEvent(event::Failed{.failure = failure}));
    CHECK(heard(R"({"kind":"last_words","code":"RT-T1","message":"why"})") ==
          RankEvent(event::LastWords{failure}));
}

TEST_CASE("Control.malformed_messages_are_refused") {
    const std::string status =
        R"("progress":0,"steps":0,"collectives":0,"waiting_in":"","reading":"")";
    const std::vector<std::string> of_ranks{
        "",
        "{",
        "[]",
        "1",
        "{}",
        R"({"kind":1})",
        R"({"kind":"nonsense"})",
        R"({"kind":"done"} )" + std::string("x"),
        R"({"kind":"done","more":1})",
        R"({"kind":"ping"})",
        R"({"kind":"saved"})",
        R"({"kind":"saved","checkpoint":1,"iteration":1})",
        R"({"kind":"saved","checkpoint":"","iteration":-1})",
        R"({"kind":"saved","checkpoint":"","iteration":1.5})",
        R"({"kind":"saved","checkpoint":"","iteration":9223372036854775808})",
        R"({"kind":"failed","code":"","message":1,"checkpoint":"","lost":[]})",
        R"({"kind":"failed","code":"","message":"","checkpoint":"","lost":1})",
        R"({"kind":"failed","code":"","message":"","checkpoint":"","lost":[-1]})",
        R"({"kind":"failed","code":"","message":"","checkpoint":"","lost":[2147483648]})",
        R"({"kind":"failed","code":"","message":"","checkpoint":"","lost":["1"]})",
        R"({"kind":"last_words","code":""})",
        R"({"kind":"last_words","code":"","message":"","how":1})",
        R"({"kind":"last_words","code":"","message":"","rank":-1})",
        R"({"kind":"last_words","code":"","message":"","rank":2147483648})",
        R"({"kind":"last_words","code":"","message":"","from_outside":1})",
        R"({"kind":"last_words","code":"","message":"","more":1})",
        R"({"kind":"hello","rank":-1,"size":1,"attempt":1,"pid":1,"host":""})",
        R"({"kind":"hello","rank":0.5,"size":1,"attempt":1,"pid":1,"host":""})",
        R"({"kind":"hello","rank":2147483648,"size":1,"attempt":1,"pid":1,"host":""})",
        R"({"kind":"hello","rank":18446744073709551616,"size":1,"attempt":1,"pid":1,"host":""})",
        R"({"kind":"hello","rank":0,"size":1,"attempt":1,"pid":1,"host":"","token":""})",
        R"({"kind":"hello","size":1,"attempt":1,"pid":1,"host":""})",
        R"({"kind":"status","rank":0,"phase":"dreaming","cpu_s":0,)" + status + "}",
        R"({"kind":"status","rank":0,"phase":"done","cpu_s":-1,)" + status + "}",
        R"({"kind":"status","rank":0,"phase":"done","cpu_s":"1",)" + status + "}",
        R"({"kind":"status","rank":0,"phase":"done","cpu_s":1e999,)" + status + "}",
        R"({"kind":"status","rank":0,"phase":"done","cpu_s":1,"output_blocked":"no",)" + status +
            "}",
        R"({"kind":"status","rank":0,"phase":"done","cpu_s":1,"stopped":1,)" + status + "}",
        R"({"kind":"address","host":"10.0.0.1","port":-1})",
        "{\"kind\":\"training\",\"checkpoint\":\"\xff\"}",
        R"({"kind":"stack","text":)" + std::string(1000, '[') + std::string(1000, ']') + "}"};
    for (const std::string& text : of_ranks) {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS((void)parse_from_rank(text), doctest::Contains("[RT-L9]"),
                             LaunchError);
    }
    for (const std::string text :
         {R"({"kind":"hello","rank":0,"size":1,"attempt":1,"pid":1,"host":""})",
          R"({"kind":"preempt","grace_s":-1})", R"({"kind":"preempt","grace_s":"1"})",
          R"({"kind":"preempt"})",
          R"({"kind":"decision","restart":1,"delay_s":0,"skip":[],"reason":""})",
          R"({"kind":"decision","restart":true,"delay_s":0,"skip":[1],"reason":""})"}) {
        CAPTURE(text);
        CHECK_THROWS_AS((void)parse_from_driver(text), LaunchError);
    }
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS((void)encode(DriverEvent(event::Preempt{nan})), LaunchError);
    CHECK_THROWS_AS((void)encode(RankEvent(event::Saved{.iteration = -1})), LaunchError);
    CHECK(std::get<RankReport>(
              parse_from_rank(R"({"kind":"status","rank":0,"phase":"done","cpu_s":1,)" + status +
                              "}"))
              .cpu_s == 1);
}

TEST_CASE("Control.frames_are_cut_anywhere_and_bounded") {
    const std::string stream = frame_of("first") + frame_of("") + frame_of(std::string(70000, 'x'));
    for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{4096}}) {
        FrameReader reader;
        std::vector<std::string> frames;
        for (std::size_t at = 0; at < stream.size(); at += step) {
            reader.append(std::string_view(stream).substr(at, step));
            while (auto frame = reader.next()) {
                frames.push_back(std::move(*frame));
            }
        }
        CHECK(frames == std::vector<std::string>{"first", "", std::string(70000, 'x')});
    }
    FrameReader reader;
    reader.append(frame_of("", max_frame));
    CHECK_FALSE(reader.next().has_value());
    FrameReader other;
    other.append(frame_of("", max_frame + 1));
    CHECK_THROWS_AS((void)other.next(), LaunchError);
}

TEST_CASE("Control.ranks_report_and_hear_what_the_driver_says") {
    for (const bool remote : {false, true}) {
        CAPTURE(remote);
        Driver driver(2, remote);
        const auto variables = remote ? from_elsewhere(driver) : driver.variables();
        Process first({"--rank", "0", "2"}, variables);
        Process second({"--rank", "1", "2"}, variables);
        for (const int rank : {0, 1}) {
            const Process& process = rank == 0 ? first : second;
            REQUIRE(eventually([&] { return driver.joined(rank).has_value(); }));
            const Hello hello = *driver.joined(rank);
            CHECK(hello.local == !remote);
            CHECK(hello.pid == process.pid());
            CHECK(hello.size == 2);
            CHECK(eventually([&] { return !driver.events(rank).empty(); }));
            CHECK(driver.events(rank)[0] == RankEvent(event::Training{"hidden"}));
            CHECK(eventually([&] { return driver.reports(rank) > 3; }));
            CHECK(driver.last(rank).phase == Phase::training);
            CHECK(driver.last(rank).cpu_s > 0);
            driver.send(rank, event::Preempt{2.5});
            CHECK(eventually([&] { return driver.events(rank).size() > 1; }));
            CHECK(driver.events(rank)[1] ==
                  RankEvent(event::LastWords{
                      {.code = ErrorCode::parse("grace"), .message = "2.500000"}}));
            const std::string reason = "reason " + std::to_string(rank);
            driver.send(rank, Decision{.skip = {"checkpoint_000001"}, .reason = reason});
            CHECK(eventually(
                [&] { return driver.left().size() == static_cast<std::size_t>(rank) + 1; }));
            REQUIRE(driver.events(rank).size() == 4);
            CHECK(driver.events(rank)[2] ==
                  RankEvent(event::Saved{.checkpoint = reason, .iteration = 3}));
            CHECK(driver.events(rank)[3] == RankEvent(event::Done{}));
        }
        CHECK(first.wait() == 0);
        CHECK(second.wait() == 0);
        CHECK(driver.left() == std::vector<int>{0, 1});
        CHECK(driver.refused().empty());
    }
}

TEST_CASE("Control.without_a_driver_there_is_no_link") {
    ::unsetenv(ControlAddress::variable);
    CHECK(DriverLink::from_environment() == nullptr);
}

TEST_CASE("Control.a_rank_without_its_driver_says_so") {
    std::map<std::string, std::string> variables;
    {
        const Driver driver(1, true);
        variables = driver.variables();
    }
    CHECK_THROWS_WITH_AS(link_with(variables)->connect(0, 1), doctest::Contains("[RT-L8]"),
                         LaunchError);
    variables[ControlAddress::variable] = "nonsense";
    CHECK_THROWS_WITH_AS(link_with(variables)->connect(0, 1), doctest::Contains("not an address"),
                         LaunchError);
}

TEST_CASE("Control.a_directory_of_others_is_refused") {
    boost::asio::io_context io;
    const Directory directory;
    std::filesystem::permissions(directory.path(), std::filesystem::perms(0750));
    const auto listen_in = [&](const std::filesystem::path& path) {
        const ControlServer server(io, {.attempt = 1, .size = 1, .directory = path}, {});
    };
    CHECK_THROWS_WITH_AS(listen_in(directory.path()), doctest::Contains("[RT-L7]"), LaunchError);
    CHECK_THROWS_AS(listen_in(directory.path() / "missing"), LaunchError);
    std::filesystem::permissions(directory.path(), std::filesystem::perms(0700));
    const auto deep = directory.path() / std::string(120, 'x'); // longer than a socket's name
    std::filesystem::create_directory(deep);
    std::filesystem::permissions(deep, std::filesystem::perms(0700));
    listen_in(deep);
    CHECK(std::filesystem::is_empty(deep));
}

TEST_CASE("Control.listens_on_one_interface") {
    CHECK(Driver(1).address().tcp.empty());
    boost::asio::io_context io;
    CHECK_FALSE(own_address(io, {}).is_unspecified());
    CHECK_FALSE(own_address(io, {"localhost", "name.invalid"}).is_unspecified());
    const Driver driver(1, true);
    const std::string tcp = driver.address().tcp;
    CHECK_FALSE(tcp.starts_with("0.0.0.0"));
    CHECK(Stranger(tcp).connected());
    const std::string elsewhere = "127.0.0.1" + tcp.substr(tcp.rfind(':'));
    CHECK(Stranger(elsewhere).connected() == tcp.starts_with("127."));
}

TEST_CASE("Control.another_user_is_turned_away") {
    if (::geteuid() != 0) {
        MESSAGE("SKIPPED: only root can become another user");
        return;
    }
    Driver driver(2);
    Bystander bystander(driver);
    const std::string path = driver.address().socket.string();
    Process outside({"--stranger", path, driver.token()});
    CHECK(contains(outside.output(), "Permission denied"));
    // Somebody has opened the directory.
    std::filesystem::permissions(std::filesystem::temp_directory_path(),
                                 std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    std::filesystem::permissions(driver.directory(), std::filesystem::perms(0755));
    std::filesystem::permissions(path, std::filesystem::perms(0777));
    Process inside({"--stranger", path, driver.token()});
    CHECK(contains(inside.output(), "turned away"));
    CHECK(eventually(
        [&] { return driver.has_refused("user 65534: the process belongs to a different user"); }));
    CHECK_FALSE(driver.joined(1).has_value());
    bystander.check_that_it_goes_on();
}

TEST_CASE("Control.hostile_peers_are_turned_away") {
    Driver driver(2, true);
    Bystander bystander(driver);
    const std::string hello =
        encode(Hello{.rank = 1, .size = 2, .attempt = 1, .pid = 1, .host = "x"});
    const std::string token = driver.token();
    std::string wrong_token = token;
    wrong_token.back() = wrong_token.back() == '0' ? '1' : '0';
    const std::string other_rank =
        encode(RankReport{.rank = 0, .phase = Phase::training, .waiting_in = "", .cpu_s = 0});

    struct Attack {
        std::string name;
        std::string says;
        std::string refused;
        bool joins = false;
    };
    const std::vector<Attack> attacks{
        {"no token", hello, "wrong token"},
        {"wrong token", wrong_token + hello, "wrong token"},
        {"garbage", std::string(100000, '\xa5'), "wrong token"},
        {"web browser",
         "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: something with a long name\r\n\r\n",
         "wrong token"},
        {"1 GiB before hello", token + frame_of("", 1U << 30U), "1073741824 bytes"},
        {"hello too long", token + frame_of(std::string(5000, ' ')), "5000 bytes"},
        {"garbage behind the token", token + frame_of("garbage"), "malformed"},
        {"status first", token + other_rank, "not a hello"},
        {"1 GiB after hello", token + hello + frame_of("", 1U << 30U), "1073741824 bytes", true},
        {"garbage after hello", token + hello + frame_of("garbage"), "malformed", true},
        {"unknown kind", token + hello + frame_of(R"({"kind":"restart"})"), "unknown", true},
        {"hello twice", token + hello + hello, "sent a report of a different rank", true},
        {"as another rank", token + hello + other_rank, "sent a report of a different rank", true},
    };
    std::size_t lefts = 0;
    for (const Attack& attack : attacks) {
        for (const bool tcp : {false, true}) {
            CAPTURE(attack.name);
            CAPTURE(tcp);
            Stranger stranger =
                tcp ? Stranger(driver.address().tcp) : Stranger(driver.address().socket);
            REQUIRE(stranger.connected());
            const auto before = driver.refused().size();
            std::this_thread::sleep_for(100ms); // or they would be counted, not told
            (void)stranger.say(attack.says);
            const auto heard = stranger.hear_to_the_end();
            REQUIRE(heard.has_value());
            CHECK(eventually([&] { return driver.refused().size() > before; }));
            CHECK(contains(driver.refused().back(), attack.refused));
            if (attack.joins) {
                ++lefts;
                CHECK(eventually([&] { return driver.left().size() == lefts; }));
                CHECK(driver.left().back() == 1);
            } else {
                CHECK(heard->empty());
                CHECK_FALSE(driver.joined(1).has_value());
            }
        }
        if (&attack == &attacks[7]) {
            bystander.check_that_it_goes_on();
        }
    }
    CHECK(driver.left() == std::vector<int>(lefts, 1));
}

TEST_CASE("Control.a_rank_has_one_connection_and_the_right_numbers") {
    Driver driver(2);
    Bystander bystander(driver);
    const auto refused = [&](int rank, int size) {
        try {
            link_with(driver.variables())->connect(rank, size);
        } catch (const LaunchError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(contains(refused(0, 2), "rank 0 is connected already"));
    CHECK(contains(refused(0, 2), "[RT-L8]"));
    CHECK(contains(refused(1, 3), "but there are 2 ranks"));
    CHECK(contains(refused(2, 2), "but there are 2 ranks"));
    auto variables = driver.variables();
    variables[ControlAddress::attempt_variable] = "2";
    try {
        link_with(variables)->connect(1, 2);
        FAIL("joined");
    } catch (const LaunchError& error) {
        CHECK(contains(error.what(), "attempt 2"));
    }
    CHECK(eventually([&] { return driver.refused().size() == 5; }));
    const auto link = link_with(driver.variables());
    link->connect(1, 2);
    CHECK(eventually([&] { return driver.reports(1) > 0; }));
    bystander.check_that_it_goes_on();
}

TEST_CASE("Control.a_wrong_token_is_an_error_of_the_rank") {
    const Driver driver(1);
    auto variables = driver.variables();
    variables[ControlAddress::token_variable] = std::string(64, '0');
    CHECK_THROWS_WITH_AS(link_with(variables)->connect(0, 1, 1s),
                         doctest::Contains("token belong to a different attempt"), LaunchError);
    CHECK(driver.has_refused("wrong token"));
}

TEST_CASE("Control.slow_peers_are_turned_away") {
    Driver driver(2, true);
    Bystander bystander(driver);
    const std::string hello =
        encode(Hello{.rank = 1, .size = 2, .attempt = 1, .pid = 1, .host = "x"});
    Stranger silent(driver.address().tcp);
    Stranger slow_token(driver.address().tcp);
    Stranger slow_hello(driver.address().socket);
    REQUIRE(slow_hello.say(driver.token()));
    const auto begin = Clock::now();
    const std::string slowly = driver.token() + hello;
    std::size_t said = 0;
    while (said < slowly.size() && said < hello.size() && slow_token.say(slowly.substr(said, 1)) &&
           slow_hello.say(hello.substr(said, 1))) {
        ++said;
        std::this_thread::sleep_for(200ms);
    }
    CHECK(said < hello.size());
    CHECK(Clock::now() - begin >= ControlServer::handshake_limit);
    CHECK(silent.hear_to_the_end().has_value());
    CHECK(eventually([&] { return driver.refused().size() == 3; }));
    CHECK(driver.has_refused("within 5 s"));
    CHECK_FALSE(driver.joined(1).has_value());
    bystander.check_that_it_goes_on();
}

TEST_CASE("Control.thousands_of_connections_do_not_keep_a_rank_out") {
    rlimit files{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
    Driver driver(2, true);
    Bystander bystander(driver);
    const std::size_t count = std::min<rlim_t>(4000, files.rlim_cur / 2 - 100);
    std::vector<Stranger> crowd;
    std::atomic<bool> stop = false;
    std::size_t made = 0;
    std::thread flood([&] {
        for (std::size_t i = 0; !stop; ++i, ++made) {
            Stranger one =
                i % 2 == 0 ? Stranger(driver.address().socket) : Stranger(driver.address().tcp);
            if (i < count) {
                crowd.push_back(std::move(one)); // stays
            }
        }
    });
    std::this_thread::sleep_for(500ms);
    {
        const auto link = link_with(driver.variables());
        link->connect(1, 2);
        CHECK(eventually([&] { return driver.reports(1) > 1; }));
    }
    CHECK(eventually([&] { return driver.left().size() == 1; }));
    CHECK(driver.left() == std::vector<int>{1});
    std::this_thread::sleep_for(2s);
    stop = true;
    flood.join();
    MESSAGE(made, " connections, of which stay ", crowd.size());
    CHECK(crowd.size() > 1000);
    CHECK(driver.has_refused("too many connections"));
    CHECK(driver.has_refused(" more"));
    CHECK(driver.refused().size() < 500); // what is told is bounded
    // All but 4 a rank were closed; those follow at their deadline.
    for (const Stranger& one : crowd) {
        CHECK(one.hear_to_the_end().has_value());
    }
    const auto link = link_with(driver.variables());
    link->connect(1, 2);
    CHECK(driver.last(0).rank == 0);
}

TEST_CASE("Control.a_recorded_session_cannot_be_played_again") {
    std::string recorded;
    {
        const Driver driver(2);
        recorded = driver.token() +
                   encode(Hello{.rank = 1, .size = 2, .attempt = 1, .pid = 1, .host = "x"}) +
                   encode(RankReport{.rank = 1, .waiting_in = "", .cpu_s = 0}) +
                   encode(RankEvent(event::Done{}));
        Stranger rank(driver.address().socket);
        REQUIRE(rank.say(recorded));
        CHECK(eventually([&] { return driver.events(1).size() == 1; }));
    }
    Driver next(2);
    Bystander bystander(next);
    Stranger replay(next.address().socket);
    (void)replay.say(recorded);
    CHECK(replay.is_turned_away());
    CHECK(eventually([&] { return next.has_refused("wrong token"); }));
    CHECK_FALSE(next.joined(1).has_value());
    CHECK(next.events(1).empty());
    bystander.check_that_it_goes_on();
}

TEST_CASE("Control.preemption_is_heard_also_by_a_late_listener") {
    Driver driver(1);
    const auto link = link_with(driver.variables());
    link->connect(0, 1);
    driver.send(0, event::Preempt{3});
    driver.send(0, event::Dump{}); // comes after it
    CHECK(eventually([&] { return !driver.events(0).empty(); }));
    std::atomic<double> heard = -1;
    link->on_preempt([&](double grace_s) { heard = grace_s; });
    CHECK(eventually([&] { return heard == 3; }));
    driver.send(0, event::Preempt{0});
    CHECK(eventually([&] { return heard == 0; }));
    CHECK_FALSE(link->answers().wait_for_decision(10ms).has_value());
}

TEST_CASE("Control.what_was_said_last_arrives") {
    Driver driver(1);
    {
        const auto link = link_with(driver.variables());
        link->connect(0, 1);
        driver.pause(700ms); // more than a socket takes at once has to wait
        for (int i = 0; i < 20; ++i) {
            link->say(event::Stack{std::string(50'000, 'x')});
        }
        link->say(event::LastWords{{.code = "RT-T1", .message = "the end"}});
    }
    CHECK(eventually([&] { return driver.left().size() == 1; }));
    REQUIRE(driver.events(0).size() == 21);
    CHECK(std::get<event::LastWords>(driver.events(0).back()).failure.message == "the end");
    CHECK(driver.refused().empty());
}

TEST_CASE("Control.a_rank_ends_with_its_driver") {
    for (const bool remote : {false, true}) {
        CAPTURE(remote);
        Process driver({"--driver", remote ? "remote" : "local"});
        // It has a rank when it says so; then it dies.
        std::this_thread::sleep_for(2s);
        driver.kill(SIGKILL);
        (void)driver.wait();
        const auto begin = Clock::now();
        const std::string output = driver.output(); // ends when the rank has ended
        CAPTURE(output);
        CHECK(contains(output, "rank "));
        CHECK(contains(output, "rtrain: rank 0 has lost its driver"));
        CHECK(contains(output, "[RT-L10]"));
        CHECK(Clock::now() - begin < 5s);
    }
}

TEST_CASE("Control.a_remote_rank_ends_when_its_driver_is_silent") {
    // One that is not silent: its rank, in this process, lives on.
    Driver other(1, true);
    const auto link = link_with(from_elsewhere(other));
    link->connect(0, 1);
    Process driver({"--driver", "remote"});
    std::this_thread::sleep_for(2s);
    driver.kill(SIGSTOP);
    const auto begin = Clock::now();
    std::thread end([&] {
        std::this_thread::sleep_for(15s);
        driver.kill(SIGKILL);
    });
    const std::string output = driver.output();
    end.join();
    CAPTURE(output);
    CHECK(contains(output, "it has been silent for 10 s"));
    CHECK(Clock::now() - begin < 40s);
    const int reports = other.reports(0);
    CHECK(eventually([&] { return other.reports(0) > reports; }));
}

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (!words.empty() && words[0] == "--rank") {
        return be_rank(std::stoi(words.at(1)), std::stoi(words.at(2)));
    }
    if (!words.empty() && words[0] == "--driver") {
        return be_driver(words.at(1) == "remote");
    }
    if (!words.empty() && words[0] == "--stranger") {
        return be_stranger(words.at(1), words.at(2));
    }
    return doctest::Context(argc, argv).run();
}
