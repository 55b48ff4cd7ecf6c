// SPDX-License-Identifier: Apache-2.0
// Where ranks go: hostfiles, --host lists, hosts that do not answer. Includes no libtorch.
#include <rtrain/launch/supervise/hosts.hpp>
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/without_mpirun.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

using namespace rtrain;
using namespace rtrain::launch;

namespace {

using Words = std::vector<std::string>;

/// A directory that vanishes, with files and an agent that reaches the hosts that have a file
/// there: "up-<name>".
struct Directory {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("rtrain-hosts-" + std::to_string(::getpid()));
    Directory() {
        std::filesystem::remove_all(path);
        std::filesystem::create_directory(path);
        write("agent", "#!/bin/sh\necho \"$@\" >> " + file("asked") + "\necho $$ > " +
                           file("pid-") + "$1\n[ ! -e " + file("slow-") +
                           "$1 ] || sleep 600\n[ -e " + file("up-") +
                           "$1 ] || exit 255\nshift\nsh -c \"$*\"\n");
        ::chmod(file("agent").c_str(), 0700);
        ::setenv("OMPI_MCA_plm_rsh_agent", file("agent").c_str(), 1);
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        ::unsetenv("OMPI_MCA_plm_rsh_agent");
        std::filesystem::remove_all(path);
    }
    [[nodiscard]] std::string file(const std::string& name) const { return (path / name).string(); }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name) << text;
    }
    void remove(const std::string& name) const { std::filesystem::remove(path / name); }
    [[nodiscard]] std::string asked() const {
        std::ifstream all(path / "asked");
        return {std::istreambuf_iterator<char>(all), {}};
    }
};

int processors() {
    return static_cast<int>(std::thread::hardware_concurrency());
}

} // namespace

TEST_CASE("Hosts.arguments_of_mpirun_are_taken_apart") {
    const Directory directory;
    const auto read = read_host_arguments({"--mca", "btl", "self,tcp", "-H", "a:2,b", "--bind-to",
                                           "none", "--host", "b:3,c:*", "-x", "NAME"});
    CHECK(read.others == Words{"--mca", "btl", "self,tcp", "--bind-to", "none", "-x", "NAME"});
    REQUIRE(read.hosts.size() == 3);
    CHECK(read.hosts[0].name == "a");
    CHECK(read.hosts[0].slots == 2);
    CHECK(read.hosts[1].slots == 4);
    CHECK(read.hosts[2].name == "c");
    CHECK(!read.hosts[2].slots);
    CHECK(read.agent == directory.file("agent"));
    CHECK(read_host_arguments({"-mca", "plm_rsh_agent", "my agent"}).agent == "my agent");
    CHECK(read_host_arguments({"--prtemca", "plm_ssh_agent", "other"}).agent == "other");
    for (const char* name : {"--hostfile", "-hostfile", "--machinefile", "-machinefile"}) {
        CHECK(read_host_arguments({name, "f"}).files == Words{"f"});
    }
    CHECK(!read_host_arguments({"-x", "--hosts"}).name_hosts());
}

TEST_CASE("Program.is_a_file_in_an_absolute_directory_of_path") {
    const Directory directory;
    directory.write("mpirun", "#!/bin/sh\n");
    ::chmod(directory.file("mpirun").c_str(), 0700);
    std::filesystem::create_directories(directory.path / "first/mpirun"); // is not a program
    const std::string before = std::getenv("PATH");
    const auto here = std::filesystem::current_path();
    std::filesystem::current_path(directory.path);
    const auto found = [](const char* path) {
        path != nullptr ? ::setenv("PATH", path, 1) : ::unsetenv("PATH");
        return find_program("mpirun");
    };
    for (const char* const path :
         {"", ":", "/nowhere:", ":/nowhere", "/nowhere::/nothing", ".", "./"}) {
        CAPTURE(path);
        CHECK(!found(path));
    }
    const auto usual = found(nullptr);
    CHECK((!usual || usual->is_absolute()));
    CHECK((!usual || usual->parent_path() != directory.path));
    const std::string all = directory.file("first") + "::" + directory.path.string();
    CHECK(found(all.c_str()) == directory.path / "mpirun");
    ::chmod(directory.file("mpirun").c_str(), 0600);
    CHECK(!found(all.c_str()));
    std::filesystem::current_path(here);
    ::setenv("PATH", before.c_str(), 1);
}

TEST_CASE("Temporary.a_directory_that_cannot_be_written_is_named") {
    const Directory directory;
    ::chmod(directory.path.c_str(), 0500);
    const bool is_root = ::geteuid() == 0;
    constexpr uid_t nobody = 65534;
    if (is_root && ::seteuid(nobody) != 0) {
        return;
    }
    const char* const before = std::getenv("TMPDIR");
    const std::string saved = before != nullptr ? before : "";
    ::setenv("TMPDIR", directory.path.c_str(), 1);
    CHECK_THROWS_WITH_AS((void)storage::temporary_directory(),
                         doctest::Contains("in which this user may create files"), ConfigError);
    before != nullptr ? ::setenv("TMPDIR", saved.c_str(), 1) : ::unsetenv("TMPDIR");
    if (is_root) {
        REQUIRE(::seteuid(0) == 0);
    }
    ::chmod(directory.path.c_str(), 0700);
}

TEST_CASE("Hosts.hostfiles_are_read_as_mpirun_does") {
    const Directory directory;
    directory.write("hosts", "# all of them\n\n  a slots=2 max_slots=4\nuser@b   # big\n"
                             "c slots=1\nc slots=3");
    const auto hosts = read_hostfile(directory.file("hosts"));
    REQUIRE(hosts.size() == 3);
    CHECK(hosts[0].name == "a");
    CHECK(hosts[0].slots == 2);
    CHECK(hosts[1].name == "user@b");
    CHECK(!hosts[1].slots);
    CHECK(hosts[2].slots == 4);
    directory.write("empty", "");
    CHECK(read_hostfile(directory.file("empty")).empty());
}

TEST_CASE("Hosts.what_cannot_be_read_is_refused") {
    const Directory directory;
    const auto room = [&](const Words& arguments) {
        return find_room({.num_workers = {1, 4}, .mpirun_args = arguments});
    };
    CHECK_THROWS_WITH_AS((void)room({"--hostfile", directory.file("missing")}),
                         doctest::Contains("RT-L11"), LaunchError);
    CHECK_THROWS_WITH_AS((void)room({"--hostfile", directory.path.string()}),
                         doctest::Contains("RT-L11"), LaunchError);
    for (const char* text : {"a slots=two", "a slots=", "a slots=-1", "slots=2", "a slots=2x"}) {
        CAPTURE(text);
        directory.write("bad", "ok slots=1\n" + std::string(text) + "\n");
        CHECK_THROWS_WITH_AS((void)room({"--hostfile", directory.file("bad")}),
                             doctest::Contains("bad, line 2"), LaunchError);
    }
    directory.write("option", "ok slots=1\n-v slots=1\n");
    CHECK_THROWS_WITH_AS((void)room({"--hostfile", directory.file("option")}),
                         doctest::Contains("not the name of a host"), LaunchError);
    for (const char* text : {"a:", "a:x", ":2", "a,,b", "a:1:2", "-v", "a,-oX:2"}) {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS((void)room({"--host", text}), doctest::Contains("RT-L12"),
                             LaunchError);
    }
    CHECK_THROWS_WITH_AS((void)room({"-x", "A", "--host"}), doctest::Contains("RT-L12"),
                         LaunchError);
}

TEST_CASE("Hosts.a_fixed_number_of_ranks_asks_nobody") {
    const Directory directory;
    const Words arguments{"--host", "up:2,down:2", "--bind-to", "none"};
    const auto place = find_room({.num_workers = 4, .mpirun_args = arguments});
    CHECK(place.ranks == 4);
    CHECK(place.arguments == arguments);
    CHECK(place.remote);
    CHECK(place.others == Words{"up", "down"});
    CHECK(directory.asked().empty());
    CHECK(find_room({}).ranks == 1);
    CHECK(!find_room({.num_workers = 3, .mpirun_args = {"--host", "localhost"}}).remote);
    const Words with_user{"--host", "me@localhost,me@up"};
    CHECK(find_room({.num_workers = 2, .mpirun_args = with_user}).others == Words{"up"});
}

TEST_CASE("Hosts.without_hosts_this_machine_has_room_for_all") {
    const auto place = find_room({.num_workers = {2, 8}, .mpirun_args = {"--bind-to", "none"}});
    CHECK(place.ranks == 8);
    CHECK(place.arguments == Words{"--bind-to", "none"});
    CHECK(!place.remote);
    ::setenv("SLURM_NTASKS", "5", 1);
    ::setenv("SLURM_JOB_NUM_NODES", "2", 1);
    CHECK(find_room({.num_workers = {2, 8}}).ranks == 5);
    CHECK(find_room({.num_workers = {2, 4}}).ranks == 4);
    CHECK(find_room({.num_workers = 8}).ranks == 8);
    CHECK(find_room({.num_workers = 8}).remote);
    ::unsetenv("SLURM_NTASKS");
    ::unsetenv("SLURM_JOB_NUM_NODES");
}

TEST_CASE("Hosts.come_and_go") {
    const Directory directory;
    directory.write("hosts", "localhost slots=1\nup slots=2\ndown slots=2\n");
    directory.write("up-up", "");
    const ScalingConfig scaling{
        .num_workers = {2, 4},
        .mpirun_args = {"--hostfile", directory.file("hosts"), "--bind-to", "none"}};
    const auto three = find_room(scaling);
    CHECK(three.ranks == 3);
    CHECK(three.arguments == Words{"--bind-to", "none", "--host", "localhost:1,up:2"});
    CHECK(three.remote);
    CHECK(three.silent == Words{"down"});

    directory.write("up-down", "");
    const auto four = find_room(scaling);
    CHECK(four.ranks == 4); // of 5
    CHECK(four.arguments == Words{"--bind-to", "none", "--host", "localhost:1,up:2,down:2"});
    CHECK(four.silent.empty());

    directory.write("hosts", "localhost slots=3\n");
    const auto here = find_room(scaling);
    CHECK(here.ranks == 3);
    CHECK(!here.remote);
}

TEST_CASE("Hosts.too_little_room_is_an_error") {
    const Directory directory;
    const ScalingConfig scaling{.num_workers = {2, 4},
                                .mpirun_args = {"--host", "localhost:1,one:1,two:1"}};
    CHECK(find_room(scaling).ranks == 1);
    CHECK_THROWS_WITH_AS((void)place_ranks(scaling),
                         doctest::Contains("the hosts have room for 1 ranks, but num_workers needs "
                                           "at least 2; no answer from one, two [RT-L13]"),
                         LaunchError);
    directory.write("up-two", "");
    const auto place = place_ranks(scaling);
    CHECK(place.ranks == 2);
    CHECK(place.arguments == Words{"--host", "localhost:1,two:1"});
}

TEST_CASE("Hosts.without_slots_a_host_has_room_for_its_processors") {
    const Directory directory;
    directory.write("hosts", "localhost\nup\n");
    directory.write("up-up", "");
    const auto place = find_room(
        {.num_workers = {1, 100000}, .mpirun_args = {"-hostfile", directory.file("hosts")}});
    CHECK(place.ranks == 2 * processors());
    CHECK(directory.asked() == "up nproc\n");
}

TEST_CASE("Hosts.of_a_file_those_of_a_list_are_meant") {
    const Directory directory;
    directory.write("hosts", "localhost slots=2\nup slots=2\n");
    directory.write("up-up", "");
    CHECK(find_room({.num_workers = {1, 9},
                     .mpirun_args = {"--hostfile", directory.file("hosts"), "--host", "localhost"}})
              .ranks == 2);
}

TEST_CASE("Hosts.who_does_not_answer_in_time_has_no_room") {
    const Directory directory;
    std::vector<Host> hosts;
    for (int i = 0; i < 10; ++i) {
        const std::string name = "h" + std::to_string(i);
        directory.write((i < 5 ? "slow-" : "up-") + name, "");
        hosts.push_back({name, 1});
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto answers = answering(hosts, directory.file("agent"), std::chrono::seconds(2));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(9)); // all at once
    REQUIRE(answers.size() == 5);
    CHECK(answers[0].name == "h5");
    for (int i = 0; i < 5; ++i) { // the agents that did not end are gone
        pid_t agent = 0;
        std::ifstream(directory.file("pid-h" + std::to_string(i))) >> agent;
        REQUIRE(agent > 0);
        CHECK(::kill(agent, 0) == -1);
    }
    CHECK(answering(hosts, "/nowhere/agent").empty());
    CHECK(answering(hosts, "").empty());
}

TEST_CASE("Hosts.ranks_of_this_machine_listen_on_no_network_unless_the_user_says_so") {
    const Directory directory;
    const std::string home = directory.path.string();
    const char* const own_home = std::getenv("HOME");
    const std::string before = own_home != nullptr ? own_home : "";
    ::setenv("HOME", home.c_str(), 1);
    RanksCommand here{.ranks = 2, .scratch = directory.path};
    const auto btl = [](const RanksCommand& command, const MpirunVersion& version) {
        const auto variables = mpi_variables(command, version);
        const auto found = variables.find("OMPI_MCA_btl");
        return found == variables.end() ? std::string() : found->second;
    };
    CHECK(btl(here, {.open_mpi = 4}) == "self,vader");
    CHECK(btl(here, {.open_mpi = 5}) == "self,sm");
    CHECK(btl({.ranks = 1, .scratch = directory.path}, {}) == "self");
    CHECK(mpi_variables(here, {.is_hydra = true}).at("UCX_NET_DEVICES") == "lo");
    CHECK(mpi_variables({.ranks = 1, .scratch = directory.path}).at("UCX_NET_DEVICES") == "lo");
    ::setenv("UCX_NET_DEVICES", "eth0", 1);
    CHECK_FALSE(mpi_variables(here, {.is_hydra = true}).contains("UCX_NET_DEVICES"));
    ::unsetenv("UCX_NET_DEVICES");
    CHECK(btl({.ranks = 2}, {.open_mpi = 4}).empty()); // on several machines
    // What the user has chosen stays.
    for (const Words& words :
         {Words{"--mca", "btl", "tcp,self"}, Words{"--mca", "pml", "ucx"},
          Words{"--mca", "btl_tcp_if_include", "eth0"}, Words{"--am", "file"}}) {
        RanksCommand chosen = here;
        chosen.arguments = words;
        CHECK(btl(chosen, {.open_mpi = 4}).empty());
    }
    ::setenv("OMPI_MCA_btl_tcp_if_include", "eth0", 1);
    CHECK(btl(here, {.open_mpi = 4}).empty());
    ::unsetenv("OMPI_MCA_btl_tcp_if_include");
    for (const bool excludes_shared : {false, true}) { // what is only excluded is no choice
        const std::string value = excludes_shared ? "^openib,vader" : "^openib";
        const std::string expected = excludes_shared ? "" : "self,vader";
        ::setenv("OMPI_MCA_btl", value.c_str(), 1);
        CHECK(btl(here, {.open_mpi = 4}) == expected);
        ::unsetenv("OMPI_MCA_btl");
        std::filesystem::create_directory(directory.path / ".openmpi");
        directory.write(".openmpi/mca-params.conf", "btl = " + value + "\n");
        CHECK(btl(here, {.open_mpi = 4}) == expected);
        std::filesystem::remove_all(directory.path / ".openmpi");
    }
    std::filesystem::create_directory(directory.path / ".openmpi");
    directory.write(".openmpi/mca-params.conf", "# none\n  btl = tcp,self\n");
    CHECK(btl(here, {.open_mpi = 4}).empty());
    std::filesystem::remove_all(directory.path / ".openmpi");
    // Memory that they cannot share is taken from files.
    RanksCommand crowd = here;
    crowd.shared_memory = "/dev/shm";
    crowd.ranks = 1'000'000;
    CHECK(btl(crowd, {.open_mpi = 4}).empty());
    CHECK_FALSE(mpi_variables(crowd).contains("OMPI_MCA_btl_vader_backing_directory"));
    CHECK(mpi_variables(here).at("OMPI_MCA_btl_vader_backing_directory") == home);
    ::setenv("HOME", before.c_str(), 1);
}

TEST_CASE("Hosts.deaths_that_each_start_meets_have_a_code") {
    const RankExit lonely =
        describe_death(1, "[vm:23889] opal_ifinit: unable to find network interfaces.\n"
                          "The PMIx server's listener thread failed to start. We cannot\n");
    CHECK(lonely.code.text() == "RT-L46");
    CHECK(lonely.text.find("ip link set lo up") != std::string::npos);
    const RankExit large = describe_death(
        153, "mpirun noticed that process rank 1 with PID 0 on node a exited on signal 25 (File "
             "size limit exceeded).\n");
    CHECK(large.code.text() == "RT-S45");
    CHECK(large.text.find("rank 1 was killed by signal 25") == 0);
    CHECK(large.text.find("ulimit -f") != std::string::npos);
    CHECK(!death_of_rank(0, SIGXFSZ, true).code.empty());
    CHECK(describe_death(1, "no such option").code.empty());
    for (const char* const says :
         {"mpirun: Error: unknown option \"--foo\"\nType 'mpirun --help' for usage.\n",
          "The specified binding policy is not recognized:\n\n  Policy: nonsense\n",
          "mpirun was unable to launch the specified application as it could not access\n",
          "[mpiexec@a] match_arg: unrecognized argument foo\n"}) {
        CAPTURE(says);
        const RankExit refused = describe_death(1, says);
        CHECK(refused.code.text() == "RT-L87");
        CHECK(refused.text.find(says) != std::string::npos);
    }
}
