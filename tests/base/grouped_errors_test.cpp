// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/base/grouped_errors.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using namespace rtrain::launch;

TEST_CASE("GroupedErrors.numbers_do_not_tell_errors_apart") {
    CHECK(without_numbers("rank 3: 17 of 0x7fff12 at 1.5e-3s, v2.10") ==
          "rank <NUM>: <NUM> of <NUM> at <NUM>s, v<NUM>");
    CHECK(without_numbers("1e 2E+ 3. .5 0x 12e+7") == "<NUM>e <NUM>E+ <NUM>. .<NUM> <NUM>x <NUM>");
    CHECK(without_numbers("") == "");
    CHECK(without_numbers("no number") == "no number");
}

TEST_CASE("GroupedErrors.equal_errors_come_once_with_their_ranks") {
    CHECK(group_by_text({{3, "out of memory"},
                         {0, "file 10 is missing"},
                         {1, "file 11 is missing"},
                         {2, "file 12 is missing"}},
                        4) == "\n  ranks 0-2 of 4: file 10 is missing"
                              "\n  rank 3 of 4: out of memory");
    CHECK(group_by_text({{1, "b"}, {0, "c"}}, 2) == "\n  rank 0 of 2: c\n  rank 1 of 2: b");
    CHECK(group_by_text({}, 2) == "");
    // All ranks throw what one of them met.
    CHECK(group_by_text({{0, "rank 1 of 2: full"}, {1, "rank 1 of 2: full"}}, 2) ==
          "\n  rank 1 of 2: full");
    CHECK(group_by_text({{0, "rank 1 of 2: full"}, {1, "torn"}}, 2) ==
          "\n  rank 1 of 2: full\n  rank 1 of 2: torn");
    CHECK(group_by_text({{0, "rank 1 of 3: full"}, {1, "rank 5 of 2: torn"}}, 2) ==
          "\n  rank 0 of 2: rank 1 of 3: full\n  rank 1 of 2: rank 5 of 2: torn");
    CHECK(list_of_ranks({0, 1, 3, 5, 6, 7, 8, 10}) == "0, 1, 3, 5-8, 10");
    CHECK(list_of_ranks({}) == "");
    CHECK(group_by_text({{0, "full"}, {1, "full"}}, 2) == "\n  ranks 0, 1 of 2: full");
}

TEST_CASE("GroupedErrors.a_rank_is_named_once") {
    using rtrain::detail::with_rank;
    CHECK(with_rank(0, 2, "full") == "rank 0 of 2: full");
    CHECK(with_rank(0, 2, "rank 1 of 2: full") == "rank 1 of 2: full");
    CHECK(with_rank(0, 2, "rank 1 waited") == "rank 0 of 2: rank 1 waited");
    CHECK(with_rank(0, 2, "rank ") == "rank 0 of 2: rank ");
    CHECK(with_rank(0, 2, "") == "rank 0 of 2: ");
}
