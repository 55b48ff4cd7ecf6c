// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far a training function has come: epoch, place in each data set, random numbers. Saved with
/// every state, so that a resumed run computes what one that never stopped would have.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/checkpoint/state_io.hpp>
#include <rtrain/data/permutation.hpp>
#include <rtrain/data/shard.hpp>

#include <ATen/CPUGeneratorImpl.h>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace rtrain {

class Progress {
public:
    /// The place in a series of batches over the data set `name`: where the checkpoint was, if one
    /// has been loaded, or where the last series was that nobody holds any more, so that batches
    /// made anew in each epoch are shuffled anew.
    [[nodiscard]] std::shared_ptr<data::Position> new_position(const std::string& name) {
        for (int number = 1;; ++number) {
            const std::string key = number == 1 ? name : name + "#" + std::to_string(number);
            auto& position = positions_[key];
            if (!position) {
                const auto saved = loaded_.find(key);
                position = std::make_shared<data::Position>(
                    saved == loaded_.end() ? data::Position{} : saved->second);
                return position;
            }
            const bool in_use = position.use_count() > 1;
            if (!in_use) {
                return position;
            }
        }
    }

    template <Backend B>
    void save(checkpoint::Snapshot& snapshot, B& backend) const {
        StateWriter out(snapshot, section);
        bool within_epoch = false;
        boost::json::object places;
        for (const auto& [name, position] : positions_) {
            within_epoch = within_epoch || position->iterating;
            places[name] = {{"epoch", position->epoch},
                            {"samples", position->samples},
                            {"rows", position->rows},
                            {"order", position->order}};
        }
        out.value("epoch", within_epoch ? epoch_ : epoch_ + 1);
        out.value("data", std::move(places));
        auto generator = at::detail::getDefaultCPUGenerator();
        const at::Tensor states = detail::all_gather(backend, generator.get_state());
        for (int rank = 0; rank < backend.size(); ++rank) {
            out.tensor(random_of(rank), states[rank]);
        }
    }

    /// Each rank goes on with its own random numbers, as far as the checkpoint knows them: see
    /// random_of_new_rank().
    void load(const checkpoint::Snapshot& snapshot, int rank) {
        const StateReader in(snapshot, section);
        epoch_ = in.value("epoch").to_number<int>() - 1;
        for (const auto& item : in.value("data").as_object()) {
            const auto& place = item.value().as_object();
            data::Position saved{place.at("epoch").to_number<std::int64_t>(),
                                 place.at("samples").to_number<std::int64_t>()};
            if (place.contains("order")) { // not in older checkpoints
                saved.rows = place.at("rows").to_number<std::int64_t>();
                saved.order = place.at("order").as_string().c_str();
            }
            loaded_[item.key()] = saved;
            if (const auto known = positions_.find(item.key()); known != positions_.end()) {
                *known->second = saved;
            }
        }
        if (in.has_tensor(random_of(rank))) {
            auto generator = at::detail::getDefaultCPUGenerator();
            generator.set_state(in.tensor(random_of(rank)).clone());
        } else if (in.has_tensor(random_of(0))) {
            random_of_new_rank(in, rank);
        }
    }

    /// The epoch under way; -1 before the first.
    [[nodiscard]] int epoch() const noexcept { return epoch_; }
    void begin_epoch(int epoch) noexcept { epoch_ = epoch; }
    /// How many epochs there will be.
    void set_epochs(int count) noexcept { epochs_ = count; }
    [[nodiscard]] bool in_last_epoch() const noexcept { return epoch_ + 1 == epochs_; }

private:
    static constexpr const char* section = "rtrain";

    static std::string random_of(int rank) { return "random/" + std::to_string(rank); }

    /// A rank that was not there when the checkpoint was made draws what the others draw if all of
    /// them drew the same, else a series of its own, made from rank 0's and its number.
    static void random_of_new_rank(const StateReader& in, int rank) {
        auto generator = at::detail::getDefaultCPUGenerator();
        const at::Tensor first = in.tensor(random_of(0)).clone();
        bool all_same = true;
        for (int other = 1; in.has_tensor(random_of(other)); ++other) {
            all_same = all_same && in.tensor(random_of(other)).equal(first);
        }
        if (all_same) {
            generator.set_state(first);
            return;
        }
        std::uint64_t seed = data::hash_of(rank);
        const auto* const bytes = first.const_data_ptr<std::uint8_t>();
        for (std::int64_t i = 0; i < first.numel(); ++i) {
            seed = data::hash_of(seed, bytes[i]);
        }
        generator.set_current_seed(seed);
    }

    /// By data set; "name#2" for a second series at the same time.
    std::map<std::string, std::shared_ptr<data::Position>> positions_;
    std::map<std::string, data::Position> loaded_;
    int epoch_ = -1;
    int epochs_ = -1; ///< unknown
};

/// What `worker.epochs()` returns: a range of epoch numbers to be gone through once.
class Epochs {
public:
    /// `in_loop(true)` is called at the beginning of the loop, `in_loop(false)` when it is left.
    Epochs(Progress& progress, int count, std::function<void(bool)> in_loop)
        : progress_(progress), count_(count), in_loop_(std::move(in_loop)) {}
    Epochs(const Epochs&) = delete;
    Epochs& operator=(const Epochs&) = delete;
    ~Epochs() { in_loop_(false); }

    class Iterator {
    public:
        using value_type = int;
        using difference_type = std::ptrdiff_t;
        Iterator(Progress& progress, int count)
            : progress_(&progress), epoch_(progress.epoch() + 1), count_(count) {}
        [[nodiscard]] int operator*() const {
            progress_->begin_epoch(epoch_);
            return epoch_;
        }
        Iterator& operator++() {
            ++epoch_;
            return *this;
        }
        void operator++(int) { ++epoch_; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return self.epoch_ >= self.count_;
        }

    private:
        Progress* progress_;
        int epoch_;
        int count_;
    };

    [[nodiscard]] Iterator begin() const {
        in_loop_(true);
        return {progress_, count_};
    }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

private:
    Progress& progress_;
    int count_;
    std::function<void(bool)> in_loop_;
};

} // namespace rtrain
