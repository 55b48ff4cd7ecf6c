// SPDX-License-Identifier: Apache-2.0
// Ways to change a prepared model between two steps: afterwards its gradients are those of one
// process, or all ranks get the documented error in the very next pass.
#include "one_process.hpp"
#include "support/ranks.hpp"
#include "support/thrown.hpp"

#include <doctest/doctest.h>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace changes_test {

using namespace rtrain;
using test::Ranks;

namespace {

/// Parameters, buffers, containers, and what is frozen from the start.
struct NetImpl : torch::nn::Cloneable<NetImpl> {
    NetImpl() { reset(); }
    void reset() override {
        torch::manual_seed(7);
        front = register_module("front", torch::nn::Linear(5, 6));
        other = register_module("other", torch::nn::Linear(6, 6));
        again = register_parameter("again", other->weight); // one tensor by two names
        norm = register_module(
            "norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6).momentum(0.0)));
        layers = register_module("layers",
                                 torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::Tanh()));
        free = register_parameter("free", torch::rand({6}) + 0.5);
        still = register_parameter("still", torch::ones({6}), false);
        last = register_module("last", torch::nn::Linear(6, 2));
    }
    torch::Tensor forward(const torch::Tensor& x) {
        auto h = torch::tanh(front(x.to(front->weight.scalar_type())));
        h = layers->forward(norm(torch::linear(other(h), again)));
        return last((h * free * still).to(last->weight.scalar_type()));
    }
    void rename(const std::string& name, const torch::Tensor& tensor) {
        parameters_[name] = tensor;
    }
    void swap_names(const std::string& a, const std::string& b) {
        std::swap(parameters_[a], parameters_[b]);
    }
    torch::nn::Linear front{nullptr}, other{nullptr}, last{nullptr};
    torch::nn::BatchNorm1d norm{nullptr};
    torch::nn::Sequential layers{nullptr};
    torch::Tensor again, free, still;
};

using Net = std::shared_ptr<NetImpl>;
using Handle = DataParallel<NetImpl, backend::Mpi>;

/// A model that a row changes: the prepared one, and its twin in one process.
struct Subject {
    Net net = std::make_shared<NetImpl>();
    std::optional<Handle> handle; ///< the twin has none
    int rank = 0;
    void (*zero)(NetImpl&) = [](NetImpl& module) { module.zero_grad(); };
    std::shared_ptr<torch::nn::Module> kept; ///< what a row makes and needs until the end

    [[nodiscard]] torch::Tensor forward(const torch::Tensor& x, bool by_handle) {
        return handle && by_handle ? (*handle)(x) : net->forward(x);
    }
};

/// What the pass after a change does.
struct Expected {
    const char* code = ""; ///< of the error on all ranks; "": gradients are right
    bool or_right = false; ///< the error is one way, right gradients the other
};
constexpr Expected averaged{};
constexpr Expected refused{"RT-M23"};
constexpr Expected averaged_or_refused{"RT-M23", true};
constexpr Expected unused{"RT-M3"}; ///< and averaged with find_unused_parameters

struct Row {
    std::string name;
    void (*change)(NetImpl&, Subject&);
    Expected expected;
    /// When the last rank alone makes the change: the code there. The others get some error.
    const char* alone = nullptr;
};

torch::Tensor other_values(const torch::Tensor& tensor) {
    return tensor.detach() * 0.5 + 0.125;
}

void set(torch::Tensor& parameter, const torch::Tensor& data) {
    parameter.set_data(data);
}
void freeze(const torch::Tensor& parameter) {
    parameter.set_requires_grad(false);
}
void unfreeze(const torch::Tensor& parameter) {
    parameter.set_requires_grad(true);
}

torch::nn::Linear linear(std::int64_t in, std::int64_t out) {
    torch::manual_seed(9);
    return torch::nn::Linear(in, out);
}

/// A module's state with other values, as an archive.
std::string saved(const torch::nn::Module& module) {
    const auto changed = module.clone();
    for (auto& parameter : changed->parameters()) {
        parameter.set_data(other_values(parameter));
    }
    std::ostringstream stream;
    torch::serialize::OutputArchive archive;
    changed->save(archive);
    archive.save_to(stream);
    return stream.str();
}

void load(torch::nn::Module& module) {
    std::istringstream stream(saved(module));
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    module.load(archive);
}

/// A hook of the user's own behind the accumulation of a gradient.
struct UsersHook : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::Tensor& /*parameter*/) override {}
};
void set_users_hook(NetImpl& n, Subject&) {
    torch::autograd::impl::set_post_acc_grad_hooks(n.free, std::make_unique<UsersHook>());
}

template <class F>
void each_parameter(NetImpl& n, F&& change) {
    for (torch::Tensor& parameter : n.parameters()) {
        change(parameter);
    }
}

void load_by_stream(NetImpl& n, Subject& s) {
    std::istringstream stream(saved(n));
    torch::load(s.net, stream);
}

void replace_by_clone(NetImpl& n, Subject&) {
    auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(n.last->clone());
    n.last = torch::nn::Linear(n.replace_module("last", copy));
}

void gather_in_one_vector(NetImpl& n, Subject&) {
    std::vector<torch::Tensor> parts;
    each_parameter(n, [&](auto& p) { parts.push_back(other_values(p).flatten()); });
    const auto flat = torch::cat(parts);
    std::int64_t offset = 0;
    each_parameter(n, [&](auto& p) {
        p.set_data(flat.slice(0, offset, offset + p.numel()).view_as(p));
        offset += p.numel();
    });
}

void halve(torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : module.parameters(false)) {
        parameter.mul_(0.5);
    }
}

void swap_data(torch::Tensor& a, torch::Tensor& b) {
    const auto kept = a.detach();
    a.set_data(b.detach());
    b.set_data(kept);
}

template <class Guard>
void forward_under(NetImpl&, Subject& s) {
    const Guard guard;
    (void)s.forward(torch::ones({4, 5}), true);
}

void forward_only(NetImpl&, Subject& s) {
    (void)s.forward(torch::ones({4, 5}), true);
}

void put_into_another(NetImpl&, Subject& s) {
    s.kept = std::make_shared<torch::nn::Module>();
    s.kept->register_module("inner", s.net);
}

void share_with_another(NetImpl& n, Subject& s) {
    s.kept = std::make_shared<torch::nn::Module>();
    s.kept->register_parameter("shared", n.front->weight);
}

/// Ranks need no other for what a clone does.
void train_a_clone_on_rank_0(NetImpl& n, Subject& s) {
    if (s.rank == 0) {
        const auto copy = std::dynamic_pointer_cast<NetImpl>(n.clone());
        copy->forward(torch::ones({4, 5})).sum().backward();
        copy->forward(torch::ones({4, 5})).sum().backward();
    }
}

void poll(NetImpl& n, Subject&) {
    std::ostringstream text;
    text << n;
    (void)n.modules();
    (void)n.named_modules();
    (void)n.named_children();
    (void)n.named_buffers();
    (void)n.is_serializable();
    (void)n.as<NetImpl>();
}

void use_copy_of_handle(NetImpl&, Subject& s) {
    if (s.handle) {
        const Handle copy = *s.handle;
        s.handle.reset();
        s.handle.emplace(copy);
    }
}

void move_handle(NetImpl&, Subject& s) {
    if (s.handle) {
        Handle moved = std::move(*s.handle);
        s.handle.emplace(std::move(moved));
    }
}

void zero_by_hand(NetImpl& n) {
    each_parameter(n, [](auto& p) {
        if (p.grad().defined()) {
            p.mutable_grad().zero_();
        }
    });
}
void zero_by_new_tensors(NetImpl& n) {
    each_parameter(n, [](auto& p) {
        p.mutable_grad() = p.requires_grad() ? torch::zeros_like(p) : torch::Tensor();
    });
}
void take_gradients_away(NetImpl& n) {
    each_parameter(n, [](auto& p) { p.mutable_grad().reset(); });
}

using N = NetImpl;
using S = Subject; // that the module belongs to

// clang-format off
const Row rows[] = {
    {"nothing", [](N&, S&) {}, averaged},
    // values
    {"torch::load", load_by_stream, averaged},
    {"load", [](N& n, S&) { load(n); }, averaged},
    {"load of a child", [](N& n, S&) { load(*n.front); }, averaged},
    {"load twice", [](N& n, S&) { load(n); load(n); }, averaged},
    {"save", [](N& n, S&) { (void)saved(n); }, averaged},
    {"values changed in place", [](N& n, S&) { halve(*n.front); }, averaged},
    {"reset_parameters", [](N& n, S&) { torch::manual_seed(8); n.front->reset_parameters(); }, averaged},
    {"apply", [](N& n, S&) { n.apply(halve); }, averaged},
    {"set_data", [](N& n, S&) { set(n.front->weight, other_values(n.front->weight)); }, averaged},
    {"set_data of all", [](N& n, S&) { each_parameter(n, [](auto& p) { p.set_data(other_values(p)); }); }, averaged},
    {"set_data with other strides", [](N& n, S&) { set(n.front->weight, n.front->weight.detach().t().contiguous().t()); }, averaged},
    {"set_data of all, parts of one vector", gather_in_one_vector, averaged},
    {"data of two parameters swapped", [](N& n, S&) { swap_data(n.other->bias, n.free); }, averaged},
    {"data of a frozen and a trained one swapped", [](N& n, S&) { swap_data(n.still, n.free); }, averaged},
    // types, devices, shapes
    {"to the same device", [](N& n, S&) { n.to(torch::kCPU); }, averaged},
    {"to the same type", [](N& n, S&) { n.to(torch::kFloat); }, averaged},
    {"to another type", [](N& n, S&) { n.to(torch::kDouble); }, refused, "RT-M23"},
    {"to another type and the same device", [](N& n, S&) { n.to(torch::kCPU, torch::kDouble); }, refused},
    {"to another type and back", [](N& n, S&) { n.to(torch::kDouble); n.to(torch::kFloat); }, averaged},
    {"to another type, a child", [](N& n, S&) { n.last->to(torch::kDouble); }, refused, "RT-M23"},
    {"to another type, what is frozen", [](N& n, S&) { set(n.still, n.still.to(torch::kDouble)); }, averaged_or_refused},
    {"set_data of another shape", [](N& n, S&) { set(n.free, torch::ones({1})); }, refused, "RT-M23"},
    {"set_data of another type", [](N& n, S&) { set(n.free, torch::ones({6}, torch::kDouble)); }, refused},
    // members
    {"replace_module", [](N& n, S&) { n.last = n.replace_module("last", linear(6, 2)); }, refused, "RT-M23"},
    {"replace_module, not the member", [](N& n, S&) { n.replace_module("last", linear(6, 2)); }, refused},
    {"replace_module of another width", [](N& n, S&) { n.last = n.replace_module("last", linear(6, 4)); }, refused},
    {"replace_module by itself", [](N& n, S&) { n.replace_module("last", n.last); }, averaged},
    {"replace_module by its clone", replace_by_clone, refused},
    {"replace_module deep inside", [](N& n, S&) { n.layers->replace_module("0", linear(6, 6)); }, refused},
    {"replace_module without parameters", [](N& n, S&) { n.layers->replace_module("1", torch::nn::ReLU()); }, averaged},
    {"set_data of a buffer", [](N& n, S&) { n.norm->running_mean.set_data(torch::zeros({6})); }, averaged},
    {"register_module", [](N& n, S&) { n.register_module("new", linear(1, 1)); }, refused, "RT-M23"},
    {"register_module without parameters", [](N& n, S&) { n.register_module("new", torch::nn::Dropout()); }, averaged},
    {"register_module of a child once more", [](N& n, S&) { n.register_module("alias", n.last); }, averaged_or_refused},
    {"unregister_module", [](N& n, S&) { n.unregister_module("last"); }, averaged_or_refused},
    {"register_parameter", [](N& n, S&) { n.register_parameter("new", torch::ones({2})); }, refused, "RT-M23"},
    {"register_parameter, frozen", [](N& n, S&) { n.register_parameter("new", torch::ones({2}), false); }, averaged_or_refused},
    {"register_parameter of one that is there", [](N& n, S&) { n.register_parameter("alias", n.free); }, averaged_or_refused},
    {"a name given to another parameter", [](N& n, S&) { n.rename("free", n.free = torch::ones({6}, torch::requires_grad())); }, refused, "RT-M23"},
    {"names of two parameters swapped", [](N& n, S&) { n.swap_names("free", "still"); }, averaged_or_refused},
    {"register_buffer", [](N& n, S&) { n.register_buffer("new", torch::ones({2})); }, averaged},
    {"Sequential::push_back", [](N& n, S&) { n.layers->push_back(linear(6, 6)); }, refused},
    {"Sequential::push_back without parameters", [](N& n, S&) { n.layers->push_back(torch::nn::Tanh()); }, averaged},
    {"members swapped", [](N& n, S&) { std::swap(n.other->bias, n.free); }, averaged},
    {"a parameter in another module, too", share_with_another, averaged},
    {"the module in another", put_into_another, averaged},
    {"a child that is not registered", [](N& n, S&) { n.last = linear(6, 2); }, unused},
    {"a parameter that is not registered", [](N& n, S&) { n.free = torch::ones({6}, torch::requires_grad()); }, unused},
    // what trains
    {"freeze", [](N& n, S&) { freeze(n.free); }, averaged},
    {"freeze a shared parameter", [](N& n, S&) { freeze(n.again); }, averaged},
    {"freeze a child", [](N& n, S&) { freeze(n.front->weight); freeze(n.front->bias); }, averaged},
    {"freeze what backward brings first", [](N& n, S&) { freeze(n.last->weight); freeze(n.last->bias); }, averaged},
    {"freeze all but one", [](N& n, S&) { each_parameter(n, freeze); unfreeze(n.free); }, averaged},
    {"freeze by detach_", [](N& n, S&) { n.free.detach_(); }, averaged},
    {"unfreeze", [](N& n, S&) { unfreeze(n.still); }, averaged},
    {"freeze one, unfreeze another", [](N& n, S&) { freeze(n.free); unfreeze(n.still); }, averaged},
    {"freeze and unfreeze", [](N& n, S&) { freeze(n.free); unfreeze(n.free); }, averaged},
    {"freeze all, unfreeze all", [](N& n, S&) { each_parameter(n, freeze); each_parameter(n, unfreeze); }, averaged},
    {"freeze and load", [](N& n, S&) { freeze(n.free); load(n); }, averaged},
    {"unfreeze and load", [](N& n, S&) { unfreeze(n.still); load(n); }, averaged},
    // modes, gradients, hooks
    {"train(false)", [](N& n, S&) { n.train(false); }, averaged},
    {"eval of a child", [](N& n, S&) { n.norm->eval(); }, averaged},
    {"eval and train", [](N& n, S&) { n.eval(); n.train(); }, averaged},
    {"zero_grad(false)", [](N&, S& s) { s.zero = [](N& n) { n.zero_grad(false); }; }, averaged},
    {"gradients zeroed by hand", [](N&, S& s) { s.zero = zero_by_hand; }, averaged},
    {"gradients replaced by zeros", [](N&, S& s) { s.zero = zero_by_new_tensors; }, averaged},
    {"gradients taken away", [](N&, S& s) { s.zero = take_gradients_away; }, averaged},
    {"register_hook", [](N& n, S&) { n.free.register_hook([](const torch::Tensor& g) { return g * 2; }); }, averaged},
    {"a hook behind accumulation", set_users_hook, averaged_or_refused},
    {"retain_grad", [](N& n, S&) { n.free.retain_grad(); }, averaged},
    {"forward under no_grad", forward_under<torch::NoGradGuard>, averaged},
    {"forward in inference mode", forward_under<c10::InferenceMode>, averaged},
    {"forward without backward", forward_only, averaged},
    {"pretty_print and lists of members", poll, averaged},
    // copies
    {"clone", [](N& n, S& s) { s.kept = n.clone(); }, averaged},
    {"a clone trained on one rank", train_a_clone_on_rank_0, averaged},
    {"a copy that shares the tensors", [](N& n, S& s) { s.kept = std::make_shared<N>(n); }, averaged},
    {"a copy of the handle", use_copy_of_handle, averaged},
    {"the handle moved", move_handle, averaged},
};
// clang-format on

torch::Tensor input_of(int rank) {
    return torch::linspace(-1, 1, 40).view({8, 5}) * (rank + 1) + 0.1 * rank;
}
torch::Tensor loss_of(const torch::Tensor& output) {
    return output.to(torch::kFloat).square().mean();
}

void descend(NetImpl& net) {
    const torch::NoGradGuard no_grad;
    each_parameter(net, [](auto& parameter) {
        if (parameter.grad().defined()) {
            parameter.sub_(parameter.grad(), 0.05);
        }
    });
}

/// One step of both; returns what the prepared one throws.
std::string step(const Ranks& ranks, Subject& prepared, Subject& twin, bool by_handle) {
    const auto expected = test::mean_gradients(*twin.net, ranks.size(), [&](int rank) {
        loss_of(twin.net->forward(input_of(rank))).backward();
    });
    prepared.zero(*prepared.net);
    const auto error = test::message_of(
        [&] { loss_of(prepared.forward(input_of(ranks.rank()), by_handle)).backward(); });
    if (!error.empty()) {
        return error;
    }
    test::check_gradients(*prepared.net, expected);
    descend(*prepared.net);
    for (const auto& item : twin.net->named_parameters()) {
        item.value().mutable_grad() = expected.at(item.key());
    }
    descend(*twin.net);
    return "";
}

/// Runs `body(ranks, prepared, twin)` on ranks of its own. Whatever it throws, all ranks go on to
/// the next row together.
template <class Body>
void on_ranks(const DataParallelOptions& options, Body&& body) {
    Ranks ranks;
    try {
        Subject prepared;
        Subject twin;
        prepared.rank = twin.rank = ranks.rank();
        prepared.handle.emplace(ranks.prepare(prepared.net, options));
        body(ranks, prepared, twin);
    } catch (const std::exception& exception) {
        FAIL_CHECK(std::string(exception.what()));
        ranks.outcome = Failure{.message = exception.what()};
    }
}

/// All ranks make the change.
void check_row(const Row& row, const DataParallelOptions& options, bool by_handle) {
    on_ranks(options, [&](Ranks& ranks, Subject& prepared, Subject& twin) {
        CHECK(step(ranks, prepared, twin, by_handle) == "");
        row.change(*prepared.net, prepared);
        row.change(*twin.net, twin);
        std::string code = row.expected.code;
        if (code == unused.code && options.find_unused_parameters) {
            code.clear();
        }
        // A single rank has nothing to average, and may let pass what several can not.
        const bool may_be_right = row.expected.or_right || code.empty() || ranks.size() == 1;
        const std::string error = step(ranks, prepared, twin, by_handle);
        CAPTURE(error);
        CHECK((error.empty() ? may_be_right : !code.empty() && test::contains(error, code)));
        if (!error.empty() && code != refused.code) {
            ranks.outcome = Failure{.message = error}; // in the middle of a pass
            return;
        }
        if (!error.empty()) { // as it is now, it can be prepared; forward may use no new parameter
            prepared.handle.reset();
            DataParallelOptions again = options;
            again.find_unused_parameters = true;
            prepared.handle.emplace(ranks.prepare(prepared.net, again));
        }
        CHECK(step(ranks, prepared, twin, by_handle) == "");
        CHECK(step(ranks, prepared, twin, by_handle) == "");
        each_parameter(*prepared.net, [&](auto& parameter) { CHECK(ranks.agree(parameter)); });
    });
}

/// The last rank alone makes the change.
void check_row_alone(const Row& row, const DataParallelOptions& options, bool by_handle) {
    on_ranks(options, [&](Ranks& ranks, Subject& prepared, Subject& twin) {
        CHECK(step(ranks, prepared, twin, by_handle) == "");
        const bool changes = ranks.rank() == ranks.size() - 1;
        if (changes) {
            row.change(*prepared.net, prepared);
        }
        const auto error = test::message_of(
            [&] { loss_of(prepared.forward(input_of(ranks.rank()), by_handle)).backward(); });
        CAPTURE(error);
        CHECK(!error.empty());
        CHECK((!changes || test::contains(error, row.alone)));
        ranks.outcome = Failure{.message = error};
    });
}

int ranks_of_job() {
    const Ranks ranks;
    return ranks.size();
}

} // namespace

TEST_CASE("Changes.leave_gradients_right_or_are_an_error_on_all_ranks") {
    for (const Row& row : rows) {
        CAPTURE(row.name);
        for (const bool by_handle : {true, false}) {
            CAPTURE(by_handle);
            check_row(row, {.bucket_bytes = 100, .first_bucket_bytes = 100}, by_handle);
        }
        check_row(row, {.find_unused_parameters = true}, true);
        check_row(row, {.gradient_as_bucket_view = false}, true);
    }
}

TEST_CASE("Changes.on_one_rank_are_an_error_on_all_ranks") {
    if (ranks_of_job() == 1) {
        return;
    }
    for (const Row& row : rows) {
        if (row.alone == nullptr) {
            continue;
        }
        CAPTURE(row.name);
        for (const bool by_handle : {true, false}) {
            CAPTURE(by_handle);
            check_row_alone(row, {.bucket_bytes = 100, .first_bucket_bytes = 100}, by_handle);
        }
        check_row_alone(row, {.find_unused_parameters = true}, true);
    }
}

// What autograd has recorded belongs to the model as it was at forward. In one process, too, some
// changes are then an error of torch's.
TEST_CASE("Changes.between_forward_and_backward_are_never_silently_wrong") {
    for (const Row& row : rows) {
        CAPTURE(row.name);
        on_ranks({}, [&](Ranks& ranks, Subject& prepared, Subject&) {
            const auto pass = [&](Subject& subject, int rank) {
                const auto loss = loss_of(subject.forward(input_of(rank), true));
                row.change(*subject.net, subject);
                loss.backward();
            };
            try {
                pass(prepared, ranks.rank());
            } catch (const std::exception& exception) {
                ranks.outcome = Failure{.message = exception.what()};
                return;
            }
            std::optional<Subject> twin;
            const auto changed_twin = [&](int rank) -> const torch::nn::Module& {
                pass(twin.emplace(), rank);
                return *twin->net;
            };
            test::check_gradients(*prepared.net, test::mean_over_ranks(ranks.size(), changed_twin));
        });
    }
}

} // namespace changes_test
