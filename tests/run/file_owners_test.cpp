// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/run/config_differences.hpp>
#include <rtrain/run/file_owners.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

using namespace rtrain;
using Names = std::vector<std::string>;

TEST_CASE("FileOwners.the_lowest_rank_copies_a_file") {
    const detail::FileOwners owners({{"a", "model"}, {}, {"model", "z"}});
    CHECK(owners.are_shared());
    CHECK(owners.copied_by(0) == Names{"a", "model"});
    CHECK(owners.copied_by(1).empty());
    CHECK(owners.copied_by(2) == Names{"z"});
    CHECK(owners.shared_by(0) == Names{"model"});
    CHECK(owners.shared_by(2) == Names{"model"});
    CHECK(!detail::FileOwners({{"a"}, {"b"}}).are_shared());
    CHECK(!detail::FileOwners({}).are_shared());
}

TEST_CASE("FileOwners.files_of_one_name_are_equal") {
    detail::require_equal_files({});
    detail::require_equal_files({{{"a", "1"}}, {}, {{"a", "1"}, {"b", "2"}}});
    const auto differ = [] { detail::require_equal_files({{{"a", "1"}}, {}, {{"a", "2"}}}); };
    CHECK(test::code_of(differ) == "RT-K5");
    CHECK(test::contains(test::message_of(differ), "ranks 0 and 2"));
}

TEST_CASE("FileOwners.a_name_is_valid_on_every_file_system") {
    const test::Directory directory("file-owners");
    test::write(directory.path() / "dir/a", "1");
    test::write(directory.path() / ".metadata.json", "{}");
    CHECK(detail::names_to_report(directory.path()) == Names{"dir/a"});
    test::write(directory.path() / "a\\b", "1");
    CHECK(test::code_of([&] { (void)detail::names_to_report(directory.path()); }) == "RT-K14");
    std::filesystem::remove(directory.path() / "a\\b");
    std::filesystem::create_symlink("nowhere", directory.path() / "link");
    CHECK(test::code_of([&] { (void)detail::names_to_report(directory.path()); }) == "RT-K14");
}

TEST_CASE("ConfigDifferences.each_key_is_named") {
    const boost::json::value was{{"lr", 0.1}, {"model", {{"layers", 2}}}, {"old", 1}};
    const boost::json::value is{{"lr", 0.2}, {"model", {{"layers", 2}}}, {"new", "x"}};
    std::vector<std::string> found;
    detail::add_differences(found, "", &was, &is);
    CHECK(found == Names{"\"lr\" was 0.1 and is 0.2", "\"old\" was 1 and is unset",
                         "\"new\" was unset and is \"x\""});
}
