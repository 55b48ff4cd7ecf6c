// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace rtrain;
using test::code_of;

namespace {

/// A storage service, which has no rename: here, in a local directory.
struct Service : storage::Local {
    /// The next call of this name for a path that ends so fails.
    struct Fault {
        std::string call, end;
        bool transient = false;
    };
    std::shared_ptr<Fault> fault = std::make_shared<Fault>();

    void write(const std::string& path, std::string_view text) const {
        meet("write", path);
        Local::write(path, text);
    }
    void remove(const std::string& path) const {
        meet("remove", path);
        Local::remove(path);
    }
    void upload(const std::filesystem::path& local, const std::string& path) const {
        meet("upload", path);
        Local::upload(local, path);
    }
    [[nodiscard]] bool exists(const std::string& path) const {
        meet("exists", path);
        return Local::exists(path);
    }
    [[nodiscard]] std::string read(const std::string& path) const {
        meet("read", path);
        return Local::read(path);
    }

private:
    void meet(const std::string& call, const std::string& path) const {
        if (fault->call == call && path.ends_with(fault->end)) {
            fault->call = "";
            if (fault->transient) {
                throw TransientStorageError("RT-S11", "no answer");
            }
            throw StorageError("RT-S10", "refused");
        }
    }
};

/// A run on a service, with several attempts.
struct Remote {
    test::Directory directory;
    Service service{};
    std::filesystem::path run = directory.path() / "run";

    explicit Remote(const std::string& name) : directory(name) {}

    [[nodiscard]] storage::Location at() const {
        return {storage::AnyFilesystem(service), run.string()};
    }
    /// As an attempt begins.
    [[nodiscard]] std::unique_ptr<checkpoint::Store> begin(const std::string& attempt) const {
        std::filesystem::create_directories(run);
        test::write(run / checkpoint::Staging::attempt_file, attempt);
        auto store = std::make_unique<checkpoint::Store>(
            checkpoint::Staging(at(), attempt, directory.path() / attempt, {}), CheckpointConfig{});
        store->open();
        return store;
    }
    [[nodiscard]] bool has(const std::string& path) const {
        return std::filesystem::exists(run / path);
    }
};

/// As rank 0 does it alone.
checkpoint::Contents stage(const checkpoint::Store& store, const std::string& name,
                           const std::string& text) {
    store.staging().stage(name, 0);
    checkpoint::CheckedFile out(store.staging().directory_of(name, 0), "file");
    out.write(text);
    return {{out.finish()}, {}};
}

void commit_remotely(checkpoint::Store& store, const std::string& name) {
    const auto contents = stage(store, name, name);
    store.staging().hand_in(name, 0, contents);
    store.commit(name, 1, contents, {});
}

} // namespace

TEST_CASE("Attempt.one_that_was_taken_for_dead_leaves_the_next_ones_checkpoints_alone") {
    const Remote remote("attempts");
    auto old = remote.begin("old");
    commit_remotely(*old, "first");
    const auto contents = stage(*old, "best", "of the old one");

    auto next = remote.begin("next");
    commit_remotely(*next, "best");
    (void)stage(*next, "unfinished", "");
    const auto& staging = old->staging();
    CHECK(code_of([&] { staging.hand_in("best", 0, contents); }) == "RT-S16");
    CHECK(code_of([&] { old->commit("best", 1, contents, {}); }) == "RT-S16");
    CHECK(code_of([&] { staging.stage("another", 0); }) == "RT-S16");
    CHECK(!remote.has("another"));
    CHECK(code_of([&] { staging.remove("first"); }) == "RT-S16");
    CHECK(code_of([&] { old->conclude("first", {}); }) == "RT-S16");
    CHECK(code_of([&] { old->open(); }) == "RT-S16");
    CHECK(remote.has("unfinished"));
    staging.give_up("best", 0);
    staging.give_up("unfinished", 0);
    CHECK(remote.has("unfinished"));
    CHECK(checkpoint::verify(remote.run / "first").index == 0);
    CHECK(checkpoint::verify(remote.run / "best").index == 1);
}

TEST_CASE("Attempt.ranks_lists_are_those_of_their_own_attempt") {
    const Remote remote("lists");
    const auto old = remote.begin("old");
    const auto next = remote.begin("next");
    (void)stage(*next, "best", "");
    next->staging().stage("best", 1);
    next->staging().hand_in("best", 1, {});
    old->staging().hand_in_failure("best", 1, std::runtime_error("late"));
    CHECK(code_of([&] { (void)next->staging().collect("best", 2, {}, {}); }).empty());
}

TEST_CASE("Attempt.numbers_of_uploads_that_may_go_on_are_not_used_again") {
    const Remote remote("numbers");
    auto old = remote.begin("old");
    commit_remotely(*old, old->next_name(""));
    (void)stage(*old, old->next_name(""), "");
    CHECK(remote.has("checkpoint_000001"));
    const auto next = remote.begin("next");
    CHECK(!remote.has("checkpoint_000001"));
    CHECK(next->next_name("") == "checkpoint_000002");
}

TEST_CASE("Attempt.numbers_stay_used_however_often_the_run_starts") {
    const Remote remote("numbers-stay");
    auto first = remote.begin("first");
    commit_remotely(*first, first->next_name(""));
    (void)stage(*first, first->next_name(""), "");
    (void)remote.begin("second"); // sweeps, and ends before it saves anything
    auto third = remote.begin("third");
    CHECK(third->next_name("") == "checkpoint_000002");
    CHECK(remote.has(".last_checkpoint_number"));
    commit_remotely(*third, third->next_name(""));
    CHECK(remote.begin("fourth")->next_name("") == "checkpoint_000003");
    CHECK(!remote.has(".last_checkpoint_number"));
}

TEST_CASE("Store.what_arrives_after_its_checkpoint_was_given_up_is_swept") {
    const Remote remote("late");
    auto store = remote.begin("attempt");
    const std::string name = store->next_name("");
    const auto contents = stage(*store, name, "text");
    store->staging().hand_in(name, 0, contents);
    store->give_up(name, 0); // as the saver does when it throws
    CHECK(!remote.has(name + "/file"));
    CHECK(store->next_name("") == "checkpoint_000001"); // a late file must not replace one of these
    test::write(remote.run / name / "file", "late");
    const auto next = remote.begin("next");
    CHECK(next->listing().damaged.empty());
    CHECK(!remote.has(name));
    CHECK(next->next_name("") == "checkpoint_000001");
}

TEST_CASE("Store.a_rank_that_cannot_say_that_it_failed_keeps_its_error") {
    const Remote remote("unsaid");
    const auto old = remote.begin("old");
    old->staging().stage("best", 1);
    *remote.service.fault = {"write", "list-old-1"};
    old->staging().hand_in_failure("best", 1, std::runtime_error("full")); // does not throw
    CHECK(remote.service.fault->call.empty());
    (void)remote.begin("next");
    old->staging().hand_in_failure("other", 1, std::runtime_error("full"));
    CHECK(!remote.has("other")); // which is another attempt's name now
    // Leftovers of such a process are not a damaged checkpoint.
    std::filesystem::create_directories(remote.run / "checkpoint_000004");
    test::write(remote.run / "checkpoint_000004/.rtrain-list-old-1", "x");
    CHECK(remote.begin("third")->listing().damaged.empty());
    CHECK(!remote.has("checkpoint_000004"));
}

TEST_CASE("Store.a_directory_on_a_service_that_is_reported_twice_is_read_each_time") {
    const Remote remote("twice-remote");
    auto store = remote.begin("attempt");
    std::filesystem::create_directories(remote.run / "own/deep");
    const storage::Location own{storage::AnyFilesystem(remote.service),
                                (remote.run / "own").string()};
    for (const std::string text : {"one", "two", "two", "longer"}) {
        test::write(remote.run / "own/deep/file", text);
        store->commit_in_place("own", checkpoint::contents_in_place(own), {});
        const Checkpoint committed = store->checkpoint("own");
        CHECK(test::read(committed.as_directory() / "deep/file") == text); // and keeps its copy
        CHECK(code_of([&] { (void)checkpoint::verify(remote.run / "own"); }).empty());
        CHECK(store->listing().committed.size() == 1);
    }
}

TEST_CASE("Store.what_fails_after_the_commit_leaves_the_checkpoint") {
    const Remote remote("after");
    auto store = remote.begin("attempt");
    const auto committed = [&](const Service::Fault& fault) {
        const std::string name = store->next_name("");
        const auto contents = stage(*store, name, name);
        store->staging().hand_in(name, 0, contents);
        *remote.service.fault = fault;
        const std::string code = code_of([&] { store->commit(name, 1, contents, {}); });
        store->staging().give_up(name, 0); // as the saver does when it throws
        CHECK(remote.service.fault->call.empty());
        CHECK(code_of([&] { (void)checkpoint::verify(remote.run / name); }).empty());
        CHECK(store->listing().committed.back().name == name);
        return code;
    };
    CHECK(committed({"write", "/latest"}) == "RT-S10");
    CHECK(committed({"remove", "/.rtrain-uploading"}).empty());
    CHECK(remote.has("checkpoint_000001/.rtrain-uploading"));
    CHECK(remote.begin("next")->listing().committed.size() == 2);
    CHECK(!remote.has("checkpoint_000001/.rtrain-uploading"));
}

TEST_CASE("MakeWay.a_copy_within_a_service_is_retried") {
    const Remote remote("make-way");
    std::filesystem::create_directories(remote.run / "deep" / "empty");
    test::write(remote.run / "a", "1");
    test::write(remote.run / "deep" / "b", "2");
    *remote.service.fault = {"upload", "b", true};
    const std::string kept = (remote.directory.path() / "kept").string();
    rtrain::detail::copy_directory(remote.at().filesystem, remote.at().path, kept,
                                   {.first_backoff_s = 0});
    CHECK(remote.service.fault->call.empty());
    CHECK(test::read(remote.directory.path() / "kept" / "a") == "1");
    CHECK(test::read(remote.directory.path() / "kept" / "deep" / "b") == "2");
}

TEST_CASE("Store.a_deletion_that_was_cut_off_is_ended_by_the_next_start") {
    const Remote remote("cut-off");
    auto store = remote.begin("attempt");
    commit_remotely(*store, "checkpoint_000000");
    *remote.service.fault = {"remove", "/checkpoint_000000"};
    CHECK(code_of([&] { store->staging().remove("checkpoint_000000"); }) == "RT-S10");
    CHECK(remote.has("checkpoint_000000/file"));
    CHECK(remote.begin("next")->listing().damaged.empty());
    CHECK(!remote.has("checkpoint_000000"));
}

TEST_CASE("Store.what_cannot_be_read_now_is_not_damaged") {
    const Remote remote("now");
    auto store = remote.begin("attempt");
    commit_remotely(*store, "best");
    store->conclude("best", {.status = CheckpointStatus::validated});
    for (const char* const file : {"/manifest.json", "/.validation.json"}) {
        for (const char* const call : {"exists", "read"}) {
            CAPTURE(file);
            CAPTURE(call);
            *remote.service.fault = {call, file, true};
            CHECK(code_of([&] { (void)checkpoint::list_checkpoints(remote.at()); }) == "RT-S11");
        }
    }
    *remote.service.fault = {"exists", "/.validation.json"};
    const auto listing = checkpoint::list_checkpoints(remote.at());
    CHECK(listing.damaged.empty());
    REQUIRE(listing.committed.size() == 1);
    CHECK((listing.committed[0].status() == CheckpointStatus::validation_failed));
}
