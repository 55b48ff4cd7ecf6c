// SPDX-License-Identifier: Apache-2.0
/// @file
/// A prepared model of monkey.cpp, and beside it one process that plays all ranks.
#pragma once

#include "monkey_model.hpp"
#include "support/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace monkey {

using Handle = rtrain::DataParallel<Net, rtrain::backend::Mpi>;

/// What a check that fails throws.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};
inline void expect_close(const torch::Tensor& found, const torch::Tensor& expected,
                         const std::string& what) {
    const double error = (found - expected).abs().max().item<double>();
    const double scale = expected.abs().max().item<double>();
    if (!(error <= 1e-5 + 1e-4 * scale)) {
        throw Wrong(rtrain::detail::concat(what, " is off by ", error, " of ", scale));
    }
}

/// One process that plays all ranks: each has gradients and buffers of its own.
class Twin {
public:
    Twin(std::shared_ptr<Net> net, int size)
        : net_(std::move(net)), gradients_(static_cast<std::size_t>(size)),
          buffers_(gradients_.size()) {
        for (auto& buffers : buffers_) {
            buffers = clones(net_->buffers());
        }
        forget_gradients();
    }

    [[nodiscard]] Net& net() const { return *net_; }

    /// Each rank's forward; in training, buffers are those of rank 0 first when they are broadcast.
    template <class Forward>
    void forward(bool broadcast, Forward&& run) {
        if (broadcast && net_->is_training()) {
            for (auto& buffers : buffers_) {
                buffers = clones(buffers_[0]);
            }
        }
        for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
            put_buffers(rank);
            run(static_cast<int>(rank));
            buffers_[rank] = clones(net_->buffers());
        }
    }

    /// Each rank's backward of its loss; then the mean when it is an averaged pass.
    void backward(const std::vector<torch::Tensor>& losses, bool sync) {
        const auto parameters = net_->parameters();
        for (std::size_t rank = 0; rank < losses.size(); ++rank) {
            net_->zero_grad();
            put_buffers(rank); // evaluating, backward reads them
            losses[rank].backward();
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                if (const auto& gradient = parameters[i].grad(); gradient.defined()) {
                    torch::Tensor& sum = gradients_[rank][i];
                    const auto mine = gradient.to_dense();
                    sum = sum.defined() ? sum + mine : mine.clone();
                    used_[i] = true;
                }
            }
        }
        for (std::size_t i = 0; sync && i < parameters.size(); ++i) {
            if (used_[i]) {
                average(i, parameters[i]);
            }
            used_[i] = false;
        }
    }

    void zero(bool set_to_none) {
        for (auto& gradients : gradients_) {
            for (auto& gradient : gradients) {
                gradient = set_to_none || !gradient.defined() ? torch::Tensor()
                                                              : torch::zeros_like(gradient);
            }
        }
    }
    /// After a change of parameters.
    void forget_gradients() {
        used_.assign(net_->parameters().size(), false);
        for (auto& gradients : gradients_) {
            gradients.assign(used_.size(), torch::Tensor());
        }
    }

    [[nodiscard]] std::vector<torch::Tensor>& gradients(int rank) {
        return gradients_.at(static_cast<std::size_t>(rank));
    }
    [[nodiscard]] const std::vector<torch::Tensor>& buffers(int rank) const {
        return buffers_.at(static_cast<std::size_t>(rank));
    }
    /// For all ranks.
    void set_buffers(const std::vector<torch::Tensor>& values) {
        for (auto& buffers : buffers_) {
            buffers = clones(values);
        }
    }

private:
    static std::vector<torch::Tensor> clones(const std::vector<torch::Tensor>& tensors) {
        std::vector<torch::Tensor> copies;
        for (const auto& tensor : tensors) {
            copies.push_back(tensor.detach().clone());
        }
        return copies;
    }
    /// In other memory, and without a trace in their versions: graphs have saved them.
    void put_buffers(std::size_t rank) {
        auto buffers = net_->buffers();
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            buffers[i].set_data(buffers_[rank][i].clone());
        }
    }
    void average(std::size_t i, const torch::Tensor& parameter) {
        auto mean = torch::zeros_like(parameter).detach();
        for (const auto& gradients : gradients_) {
            if (gradients[i].defined()) {
                mean += gradients[i] / static_cast<double>(gradients_.size());
            }
        }
        for (auto& gradients : gradients_) {
            gradients[i] = mean.clone();
        }
    }

    std::shared_ptr<Net> net_;
    std::vector<std::vector<torch::Tensor>> gradients_; ///< by rank and parameter
    std::vector<std::vector<torch::Tensor>> buffers_;   ///< by rank
    std::vector<bool> used_; ///< by parameter: a rank has brought a gradient since the last mean
};

inline rtrain::DataParallelOptions draw_options(Dice& dice) {
    rtrain::DataParallelOptions options;
    options.first_bucket_bytes = dice.any_of({1, 50, 200, 1 << 20});
    options.bucket_bytes = dice.any_of({1, 100, 300, 1 << 20});
    options.find_unused_parameters = dice.one_in(2);
    options.gradient_as_bucket_view = !dice.one_in(3);
    options.broadcast_buffers = !dice.one_in(3);
    options.check_gradients = dice.one_in(4);
    return options;
}

/// A model on ranks and its twin.
class Subject {
public:
    Subject(test::Ranks& ranks, Dice& dice, std::uint64_t seed)
        : ranks_(ranks), options_(draw_options(dice)),
          net_(std::make_shared<Net>(seed, options_.find_unused_parameters)),
          twin_(std::make_shared<Net>(seed, options_.find_unused_parameters), ranks.size()) {
        handle_.emplace(ranks_.prepare(net_, options_));
    }

    [[nodiscard]] Net& net() { return *net_; }
    [[nodiscard]] Twin& twin() { return twin_; }
    [[nodiscard]] Handle& handle() { return *handle_; }
    [[nodiscard]] const rtrain::DataParallelOptions& options() const { return options_; }

    void prepare_again() {
        handle_.reset();
        handle_.emplace(ranks_.prepare(net_, options_));
        twin_.set_buffers(net_->buffers()); // those of rank 0
    }
    void copy_handle() {
        const Handle copy = *handle_;
        handle_.reset();
        handle_.emplace(copy);
    }

    /// On both.
    template <class Change>
    void change(Change&& change) {
        change(*net_);
        change(twin_.net());
    }

    void set_sync(bool sync) {
        guard_.reset();
        if (!sync) {
            guard_.reset(new Handle::NoSync(handle_->no_sync())); // it can not be moved
        }
    }
    [[nodiscard]] bool sync() const { return guard_ == nullptr; }

    /// The sum of the losses of `forwards` forwards. `passes` are those of all ranks.
    torch::Tensor forward(const std::vector<std::vector<Pass>>& forwards) {
        torch::Tensor mine;
        losses_.assign(static_cast<std::size_t>(ranks_.size()), torch::Tensor());
        for (const auto& passes : forwards) {
            const auto& my_pass = passes[static_cast<std::size_t>(ranks_.rank())];
            add(mine, loss_of((*handle_)(my_pass)));
            twin_.forward(options_.broadcast_buffers && sync(), [&](int rank) {
                const auto r = static_cast<std::size_t>(rank);
                add(losses_[r], loss_of(twin_.net().forward(passes[r])));
            });
        }
        return mine;
    }
    /// After the ranks' backward.
    void follow_backward() {
        twin_.backward(losses_, sync());
        losses_.clear();
    }

    void check_gradients() {
        const auto& expected = twin_.gradients(ranks_.rank());
        const auto named = net_->named_parameters();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const auto& item = named[i];
            const torch::Tensor& gradient = item.value().grad();
            const auto what = "the gradient of " + item.key();
            if (gradient.defined() != expected[i].defined() &&
                !(gradient.defined() && gradient.eq(0).all().item<bool>())) {
                throw Wrong(what + (gradient.defined() ? " is defined" : " is undefined"));
            }
            if (expected[i].defined()) {
                expect_close(gradient.to_dense(), expected[i], what);
            }
        }
    }

    void check_buffers() {
        const auto& expected = twin_.buffers(ranks_.rank());
        const auto named = net_->named_buffers();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expect_close(named[i].value().to(torch::kDouble), expected[i].to(torch::kDouble),
                         "the buffer " + named[i].key());
        }
    }

    /// A step of gradient descent, of a length below 0.02: losses are squares of products, which
    /// would soon be infinite. The twin takes over the values: errors do not add up.
    void descend() {
        const torch::NoGradGuard no_grad;
        const double rate = 0.02 / std::max(1.0, norm_of_gradients());
        auto theirs = twin_.net().parameters();
        std::vector<torch::Tensor> flat;
        std::size_t i = 0;
        for (auto& parameter : net_->parameters()) {
            if (parameter.requires_grad() && parameter.grad().defined()) {
                parameter.add_(parameter.grad(), -rate);
            }
            theirs[i++].copy_(parameter);
            flat.push_back(parameter.flatten().to(torch::kDouble));
        }
        if (!ranks_.agree(torch::cat(flat))) {
            throw Wrong("parameters differ between ranks");
        }
    }

private:
    /// The same bits on all ranks.
    [[nodiscard]] double norm_of_gradients() {
        double squares = 0;
        for (const auto& gradient : twin_.gradients(0)) {
            squares += gradient.defined() ? gradient.square().sum().item<double>() : 0;
        }
        return std::sqrt(squares);
    }
    static void add(torch::Tensor& sum, const torch::Tensor& more) {
        sum = sum.defined() ? sum + more : more;
    }
    static torch::Tensor loss_of(const torch::Tensor& output) { return output.square().mean(); }

    test::Ranks& ranks_;
    rtrain::DataParallelOptions options_;
    std::shared_ptr<Net> net_;
    Twin twin_;
    std::optional<Handle> handle_;
    std::unique_ptr<Handle::NoSync> guard_;
    std::vector<torch::Tensor> losses_; ///< the twin's, by rank
};

} // namespace monkey
