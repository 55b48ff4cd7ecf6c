// SPDX-License-Identifier: Apache-2.0
/// @file
/// Learner: a boosting library in a training, and what it is made from. Without libtorch.
#pragma once

#include <rtrain/gbdt/row_block.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::comm {
class Communicator;
} // namespace rtrain::comm

namespace rtrain::gbdt {

/// A library that trains a model, on one of the ranks that train. Members are collective among
/// those.
class Learner {
public:
    Learner() = default;
    Learner(const Learner&) = delete;
    Learner& operator=(const Learner&) = delete;
    virtual ~Learner() = default;

    /// Adds the trees of a round.
    virtual void update(int round) = 0;
    /// Returns the metrics of the evaluated tables; the same on all ranks.
    [[nodiscard]] virtual Metrics evaluate(int round) = 0;
    /// The content of a model file. Not collective; the same on all ranks.
    [[nodiscard]] virtual std::string saved() const = 0;
};

/// The ranks that train, and this one's place among them.
struct Team {
    int rank = 0;
    int size = 1;
    int threads = 1;         ///< of this rank
    bool on_one_node = true; ///< all of them
    std::string device = "cpu";
    comm::Communicator* ranks = nullptr; ///< null for one rank
};

/// The arguments of a Learner.
template <class T>
struct LearnerInput {
    Parameters parameters{};
    /// Tables by name; the first one is trained on.
    std::vector<std::pair<std::string, std::unique_ptr<RowSource<T>>>> tables{};
    std::vector<std::size_t> evaluated{}; ///< indices of tables
    std::string resumed{};                ///< content of a model file; empty: none
    Team team{};
};

} // namespace rtrain::gbdt
