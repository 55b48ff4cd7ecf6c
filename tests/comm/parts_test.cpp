// SPDX-License-Identifier: Apache-2.0
// Collectives on parts of different sizes, against plain references.
#include "support/ranks.hpp"
#include "support/thrown.hpp"

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/comm/communicator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using namespace rtrain;

namespace parts_test {
namespace {

/// A part is empty, or longer than a round of shared memory holds.
std::vector<std::int64_t> counts_of(int ranks, std::int64_t longest) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < ranks; ++rank) {
        counts.push_back(rank % 3 == 1 ? 0 : longest / (rank + 1) + rank);
    }
    return counts;
}
std::int64_t value_of(int rank, std::int64_t i) {
    return rank * 1'000'003 + i % 1009;
}
/// Neither commutative nor associative.
std::int64_t combined(std::int64_t left, std::int64_t right) {
    return left % 10'007 * 31 + right;
}

comm::Combining combining() {
    return {[](std::byte* to, const std::byte* from, std::size_t bytes) {
                REQUIRE(bytes % sizeof(std::int64_t) == 0);
                for (std::size_t i = 0; i < bytes; i += sizeof(std::int64_t)) {
                    std::int64_t left = 0;
                    std::int64_t right = 0;
                    std::memcpy(&left, to + i, sizeof left);
                    std::memcpy(&right, from + i, sizeof right);
                    left = combined(left, right);
                    std::memcpy(to + i, &left, sizeof left);
                }
            },
            sizeof(std::int64_t)};
}

/// A backend of which only the required members are known.
class Plain final : public HookRanks {
public:
    explicit Plain(HookRanks& ranks) : ranks_(ranks) {}
    [[nodiscard]] int rank() const override { return ranks_.rank(); }
    [[nodiscard]] int size() const override { return ranks_.size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) override { ranks_.all_reduce(tensor, op); }
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) override {
        return ranks_.all_gather(tensor);
    }
    void broadcast(at::Tensor& tensor, int root) override { ranks_.broadcast(tensor, root); }

private:
    HookRanks& ranks_;
};

} // namespace

TEST_CASE("Parts.are_gathered" * doctest::timeout(120)) {
    test::Ranks ranks;
    for (const std::int64_t longest : {std::int64_t{0}, std::int64_t{5}, std::int64_t{700'000}}) {
        const auto counts = counts_of(ranks.size(), longest);
        const auto mine = counts[static_cast<std::size_t>(ranks.rank())];
        at::Tensor part = torch::empty({mine}, torch::kLong);
        for (std::int64_t i = 0; i < mine; ++i) {
            part.data_ptr<std::int64_t>()[i] = value_of(ranks.rank(), i);
        }
        const auto all = ranks.mpi->communicator().parts().all_gather(part);
        REQUIRE(static_cast<int>(all.size()) == ranks.size());
        for (int rank = 0; rank < ranks.size(); ++rank) {
            const at::Tensor& theirs = all[static_cast<std::size_t>(rank)];
            REQUIRE(theirs.numel() == counts[static_cast<std::size_t>(rank)]);
            for (std::int64_t i = 0; i < theirs.numel(); i += 997) {
                REQUIRE(theirs.const_data_ptr<std::int64_t>()[i] == value_of(rank, i));
            }
        }
    }
}

TEST_CASE("Parts.texts_of_different_lengths_are_gathered" * doctest::timeout(60)) {
    test::Ranks ranks;
    const auto text_of = [](int rank) {
        return std::string(static_cast<std::size_t>(rank % 3), static_cast<char>('a' + rank));
    };
    const std::shared_ptr<HookRanks> own = ranks.any();
    Plain plain(*own);
    for (HookRanks* const backend : {own.get(), static_cast<HookRanks*>(&plain)}) {
        const auto texts = rtrain::detail::all_gather(*backend, text_of(ranks.rank()));
        REQUIRE(static_cast<int>(texts.size()) == ranks.size());
        for (int rank = 0; rank < ranks.size(); ++rank) {
            CHECK(texts[static_cast<std::size_t>(rank)] == text_of(rank));
        }
    }
}

TEST_CASE("Parts.are_combined_in_the_order_of_ranks" * doctest::timeout(120)) {
    test::Ranks ranks;
    for (const std::int64_t longest : {std::int64_t{1}, std::int64_t{90}, std::int64_t{400'000}}) {
        const comm::Parts parts(counts_of(ranks.size(), longest));
        std::vector<std::int64_t> data;
        for (std::int64_t i = 0; i < parts.elements(); ++i) {
            data.push_back(value_of(ranks.rank(), i));
        }
        std::vector<std::int64_t> own(static_cast<std::size_t>(parts.count(ranks.rank())));
        ranks.mpi->communicator().parts().reduce_scatter(
            reinterpret_cast<const std::byte*>(data.data()), parts,
            reinterpret_cast<std::byte*>(own.data()), combining());
        for (std::size_t i = 0; i < own.size(); ++i) {
            const std::int64_t at = parts.begin(ranks.rank()) + static_cast<std::int64_t>(i);
            std::int64_t expected = value_of(0, at);
            for (int rank = 1; rank < ranks.size(); ++rank) {
                expected = combined(expected, value_of(rank, at));
            }
            REQUIRE(own[i] == expected);
        }
    }
}

TEST_CASE("Parts.of_other_sizes_are_another_call" * doctest::timeout(60)) {
    test::Ranks ranks;
    if (ranks.size() == 1 || !ranks.mpi->communicator().shares_memory() ||
        ranks.mpi->local_size() < ranks.size()) {
        return; // only ranks of a node compare their calls
    }
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), 8);
    counts[0] += ranks.rank() == 0 ? 1 : 0;
    const comm::Parts parts(counts);
    std::vector<std::byte> data(static_cast<std::size_t>(parts.elements()));
    const std::string message =
        test::message_of([&] { ranks.mpi->communicator().parts().all_gather(data.data(), parts); });
    CHECK(test::contains(message, "all_gather of parts"));
    CHECK(test::contains(message, "RT-X10"));
    ranks.outcome = Failure{.code = "RT-X10", .message = message};
}

} // namespace parts_test
