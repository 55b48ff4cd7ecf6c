// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on CPU tensors. A node's ranks use shared memory, so its bytes cross the network
/// once. Unlike MPI's own they end when another rank fails, and yield the core while waiting.
#pragma once

#include <rtrain/comm/calls/arguments.hpp>
#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/calls/named_all_reduce.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/exact_sum.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>
#include <rtrain/comm/node/bucket.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/node/node_array.hpp>
#include <rtrain/comm/node/part_collectives.hpp>
#include <rtrain/comm/node/slot_scatter.hpp>
#include <rtrain/comm/node/split_barriers.hpp>
#include <rtrain/comm/node/transport.hpp>
#include <rtrain/comm/pending.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Ranks that communicate. Every member except rank(), size(), send() and receive() is collective:
/// all ranks call the same ones in the same order. Throws PeerError when another rank has failed
/// (RT-X1), left (RT-X4) or died (RT-X9). Throws CommError when calls differ between ranks (RT-X5,
/// RT-X10), after the timeout (RT-X2), and for tensors that are not on the CPU (RT-X6) or of a type
/// that cannot be reduced (RT-X7, RT-X11). Reductions combine elements in the order of ranks, first
/// within nodes: the same bits on all ranks and in every run.
class Communicator {
public:
    /// Connects all ranks.
    explicit Communicator(const World::Options& options)
        : Communicator(std::make_shared<World>(options)) {}

    /// Reuses the connections of `before`, which is_kept() and is unusable then. Collective.
    explicit Communicator(Communicator&& before)
        : Communicator(std::make_shared<World>(std::move(before.world())),
                       before.links_.take_memory()) {}

    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// After World::finish(): true if another communicator can reuse this one's connections.
    [[nodiscard]] bool is_kept() const { return Group::have_room_behind(world()); }
    [[nodiscard]] int rank() const noexcept { return all_.rank(); }
    [[nodiscard]] int size() const noexcept { return all_.size(); }
    /// World ranks of the members, by rank.
    [[nodiscard]] const std::vector<int>& members() const noexcept { return all_.members(); }
    /// State that all communicators of the process share.
    [[nodiscard]] World& world() const noexcept { return all_.world(); }
    /// This rank's index among the members on its node, from 0.
    [[nodiscard]] int local_rank() const noexcept { return links_.places().local_rank(); }
    /// Number of members on this rank's node.
    [[nodiscard]] int local_size() const noexcept {
        return static_cast<int>(links_.places().local_members().size());
    }

    /// Throws PeerError when a member has failed, left or died; never blocks.
    void check_peers(const char* what) { world().check_peers(what, members(), members()); }

    /// Reduces `tensor` in place, with any strides. Throws CommError [RT-X26] if a sum of integers
    /// exceeds their type.
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        const Call call = checked(Collective::all_reduce, tensor, op);
        if (size() > 1) {
            const auto reduce = [&](const at::Tensor& exact) { return combined(exact, call); };
            copy_back(reduced_exactly(tensor, op, size(), reduce), tensor);
        }
    }

    /// Overwrites `tensor` with that of `root`.
    void broadcast(at::Tensor& tensor, int root) {
        const Call call = begin_broadcast(tensor, root);
        if (size() == 1) {
            return;
        }
        at::Tensor buffer = tensor.contiguous();
        if (links_.within_one_node()) {
            links_.node()->broadcast(call, bytes_of(buffer), buffer.nbytes(), root);
        } else if (links_.node() == nullptr) {
            broadcast_among(all_, calls_, buffer, root, call);
        } else {
            links_.broadcast_across(call, buffer, root);
        }
        if (root != rank()) {
            copy_back(buffer, tensor);
        }
    }

    /// Returns the tensors of all ranks, stacked: shape (size, *tensor.sizes()).
    [[nodiscard]] at::Tensor all_gather(const at::Tensor& tensor) {
        const Call call = calls_.begin(checked(Collective::all_gather, tensor));
        at::Tensor gathered = rows_for(tensor, rank(), size());
        if (links_.within_one_node()) {
            links_.node()->all_gather(call, Slices::equal(tensor.numel(), size()),
                                      bytes_of(gathered));
        } else {
            MessageAllGather messages(all_, gathered);
            calls_.wait(all_, messages, call);
        }
        return gathered;
    }

    /// Reduces a tensor of shape (size, ...) and returns row rank() of the result. Throws CommError
    /// [RT-X26] on the rank whose row has a sum of integers that exceeds their type.
    [[nodiscard]] at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
        (void)rows_of(tensor, size());
        const Call call = checked(Collective::reduce_scatter, tensor, op);
        return reduced_exactly(tensor, op, size(), [&](const at::Tensor& wide) {
            return combined_row(wide, calls_.begin(call));
        });
    }

    /// Collectives on parts of different sizes.
    [[nodiscard]] PartCollectives parts() noexcept { return {all_, calls_, links_}; }
    /// Waits for all ranks.
    void barrier() {
        const Call call = calls_.begin({});
        if (links_.within_one_node()) {
            links_.node()->meet(call);
        } else {
            (void)all_gather(at::zeros({1}, at::kByte));
        }
    }

    /// Sends a contiguous tensor to a rank; `tag`, from 0 to 4095, distinguishes messages.
    void send(const at::Tensor& tensor, int to, int tag = 0) { send_async(tensor, to, tag).wait(); }
    /// Receives into a contiguous tensor exactly as many bytes as it has.
    void receive(at::Tensor& tensor, int from, int tag = 0) {
        receive_async(tensor, from, tag).wait();
    }
    /// Like send(), but returns a handle to wait on; `tensor` must not change until then.
    [[nodiscard]] Pending<Requests> send_async(const at::Tensor& tensor, int to, int tag = 0) {
        require_contiguous(tensor);
        Requests requests = all_.requests();
        requests.send(tensor, require_rank(to, size()), all_.user_tag(tag));
        return {all_, nullptr, "send", tensor, std::move(requests)};
    }
    /// Like receive(), but returns a handle to wait on; `tensor` is written until then.
    [[nodiscard]] Pending<Requests> receive_async(at::Tensor& tensor, int from, int tag = 0) {
        require_contiguous(tensor);
        Requests requests = all_.requests();
        requests.receive(tensor, require_rank(from, size()), all_.user_tag(tag));
        return {all_, nullptr, "receive", tensor, std::move(requests)};
    }

    /// Returns an all-reduce of a contiguous tensor, to be started.
    [[nodiscard]] AllReduce all_reduce_async(at::Tensor& tensor, ReduceOp op) {
        require_contiguous(tensor);
        const Call call = calls_.with_handle(checked(Collective::all_reduce_bucket, tensor, op));
        calls_.compare(call);
        if (can_overflow(call.type, op)) {
            const at::Tensor wide = exact::widened(tensor);
            return {all_, calls_, call, NamedAllReduce(all_, calls_, wide, op, 1), {tensor, wide}};
        }
        if (auto buckets = buckets_.find(tensor)) {
            return in_place(std::move(buckets), tensor, call);
        }
        return {all_, calls_, call, NamedAllReduce(all_, calls_, tensor, op, divisor(op))};
    }
    /// broadcast() of a contiguous tensor.
    [[nodiscard]] Pending<MessageBroadcast> broadcast_async(at::Tensor& tensor, int root) {
        require_contiguous(tensor);
        (void)begin_broadcast(tensor, root);
        return {all_, &calls_, "broadcast", tensor, MessageBroadcast(all_, tensor, root)};
    }
    /// all_gather(), whose result wait() returns.
    [[nodiscard]] Pending<MessageAllGather> all_gather_async(const at::Tensor& tensor) {
        (void)calls_.begin(checked(Collective::all_gather, tensor));
        at::Tensor gathered = rows_for(tensor, rank(), size());
        return {all_, &calls_, "all_gather", gathered, MessageAllGather(all_, gathered)};
    }
    /// reduce_scatter(), whose result wait() returns.
    [[nodiscard]] Pending<MessageReduceScatter> reduce_scatter_async(const at::Tensor& tensor,
                                                                     ReduceOp op) {
        require_contiguous(tensor);
        (void)rows_of(tensor, size());
        const Call call = checked(Collective::reduce_scatter, tensor, op);
        const bool widens = can_overflow(call.type, op);
        const at::Tensor wide = widens ? exact::widened(tensor) : tensor;
        (void)calls_.begin(call);
        at::Tensor row = at::empty(wide.sizes().slice(1), wide.options());
        MessageReduceScatter messages(all_, wide.view({-1}), rows_of(wide, size()), row,
                                      {wide.scalar_type(), op, divisor(op)});
        messages.reserve();
        messages.begin();
        Pending pending(all_, &calls_, "reduce_scatter", row, std::move(messages));
        if (widens) {
            pending.narrow_to(call.type);
        }
        return pending;
    }

    /// Returns zeroed memory for `elements` of a type, which the ranks of a node share and
    /// all_reduce() reduces in place. Throws CommError [RT-X12] if memory is insufficient.
    [[nodiscard]] at::Tensor allocate_bucket(std::int64_t elements,
                                             const at::TensorOptions& options) {
        if (links_.node() == nullptr || elements == 0) {
            return at::zeros({elements}, options);
        }
        const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
        auto buckets = std::make_shared<SharedBuckets>(links_.node()->group(), bytes);
        buckets_.add(buckets);
        return at::from_blob(
            buckets->mine(), {elements}, [buckets](void* /*data*/) {}, options);
    }

    /// Returns zeroed memory with one copy per node, or per rank if ranks cannot share memory or
    /// `shared` is false. Throws CommError [RT-X12] if memory is insufficient.
    [[nodiscard]] std::shared_ptr<NodeArray>
    allocate_array(std::size_t bytes, std::optional<std::vector<NodeArray::Part>> parts,
                   bool shared = true) {
        return std::make_shared<NodeArray>(shared ? SlotRanks::of(all_, links_).node : nullptr,
                                           bytes, std::move(parts));
    }
    /// True if the ranks of a node share memory; the same for all nodes. If false, each rank counts
    /// as a separate node in the members below.
    [[nodiscard]] bool shares_memory() const noexcept { return links_.node() != nullptr; }
    /// Returns slots of `bytes`, a multiple of 64, through which ranks sum block by block; named by
    /// Purpose. `sent_as`: the 2-byte type in which nodes exchange sums of float32 and float64.
    /// Throws CommError [RT-X12].
    [[nodiscard]] std::unique_ptr<SlotScatter>
    allocate_slots(std::size_t bytes, std::optional<at::ScalarType> sent_as = std::nullopt) {
        return std::make_unique<SlotScatter>(SlotRanks::of(all_, links_), all_, calls_, bytes,
                                             sent_as);
    }
    /// Returns the owners of the blocks of such slots.
    [[nodiscard]] BlockOwners block_owners() { return SlotRanks::of(all_, links_).owners; }
    /// Fills the rows of a contiguous tensor of shape (nodes, ...) from the block owners with this
    /// rank's local rank; each has its node's row. Only for block_owners() of several nodes.
    void gather_across(const at::Tensor& rows) {
        Group& across = *SlotRanks::of(all_, links_).across;
        MessageAllGather messages(across, rows);
        all_.wait(messages, "exchanging blocks between nodes");
    }
    /// Fills the rows of a contiguous tensor of bytes, of shape (ranks of this node, ...), from the
    /// ranks of this node; each has its own row. Only if they share memory.
    void gather_within(at::Tensor& rows) {
        const Call call = calls_.begin(checked(Collective::all_gather, rows[0]));
        const std::int64_t ranks = rows.size(0);
        links_.node()->all_gather(
            call, Slices::equal(rows.numel() / ranks, static_cast<int>(ranks)), bytes_of(rows));
    }
    /// gather_across() by messages; advances when polled.
    [[nodiscard]] LaterGather gather_across_later() {
        return LaterGather(*SlotRanks::of(all_, links_).across);
    }
    /// gather_within() by messages; advances when polled.
    [[nodiscard]] LaterGather gather_within_later() { return LaterGather(links_.node()->group()); }
    /// Returns `count` meetings of the ranks that allocate_array() shares memory among.
    [[nodiscard]] std::unique_ptr<SplitBarriers> allocate_meetings(std::size_t count, bool shared) {
        return std::make_unique<SplitBarriers>(shared ? SlotRanks::of(all_, links_).node : nullptr,
                                               count);
    }
    /// Waits until poll() of an operation of all ranks returns true. `what` names it in errors.
    template <class Progress>
    void wait(Progress& progress, const char* what) {
        all_.wait(progress, what);
    }
    /// Returns a communicator of the ranks that pass the same colour, ordered by key, then by rank.
    [[nodiscard]] std::unique_ptr<Communicator> split(int colour, int key = 0) {
        const at::Tensor mine = at::tensor({colour, key, world().last_group()}, at::kInt);
        const at::Tensor theirs = all_gather(mine);
        std::vector<std::pair<int, int>> chosen; // key, world rank
        int last_group = 0;
        for (int peer = 0; peer < size(); ++peer) {
            const at::Tensor row = theirs[peer];
            last_group = std::max(last_group, row[2].item<int>());
            if (row[0].item<int>() == colour) {
                chosen.emplace_back(row[1].item<int>(), all_.world_rank(peer));
            }
        }
        std::stable_sort(chosen.begin(), chosen.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<int> members;
        for (const auto& [order, rank] : chosen) {
            members.push_back(rank);
        }
        const std::vector<int> node_of = world().nodes_of(members);
        return std::unique_ptr<Communicator>(
            new Communicator(all_.shared_world(), std::move(members), node_of, last_group + 1));
    }
    /// Returns a communicator of the same ranks, of which those of a node that pass the same `part`
    /// count as a node: they share memory, and send messages to the others.
    [[nodiscard]] std::unique_ptr<Communicator> with_parts_as_nodes(int part) {
        const at::Tensor theirs = all_gather(at::tensor({part, world().last_group()}, at::kInt));
        const at::Tensor most = std::get<0>(theirs.max(0));
        std::vector<int> node_of = world().nodes_of(members());
        for (int peer = 0; peer < size(); ++peer) {
            int& node = node_of[static_cast<std::size_t>(peer)];
            node = node * (most[0].item<int>() + 1) + theirs[peer][0].item<int>();
        }
        return std::unique_ptr<Communicator>(
            new Communicator(all_.shared_world(), members(), node_of, most[1].item<int>() + 1));
    }
    /// Returns a communicator of the members on this rank's node.
    [[nodiscard]] std::unique_ptr<Communicator> split_by_node() {
        return split(world().node_of(world().rank()));
    }
    /// Returns a communicator of the members with this local rank, one a node.
    [[nodiscard]] std::unique_ptr<Communicator> split_across_nodes() { return split(local_rank()); }

private:
    explicit Communicator(const std::shared_ptr<World>& world, SharedMemory used = {})
        : Communicator(world, world->everyone(), world->nodes_of(world->everyone()),
                       world->last_group() + 1, std::move(used)) {}

    /// `node_of`: node of each member. Uses the group numbers from `id` to `id + 2`.
    Communicator(const std::shared_ptr<World>& world, std::vector<int> members,
                 const std::vector<int>& node_of, int id, SharedMemory used = {})
        : all_(world, std::move(members), id), calls_(all_),
          links_(all_, calls_, node_of, id, std::move(used)) {
        world->set_last_group(std::max(world->last_group(), id + 2));
    }

    [[nodiscard]] int divisor(ReduceOp op) const noexcept {
        return op == ReduceOp::mean ? size() : 1;
    }

    /// Blocks, and reduces in place; returns the tensor.
    at::Tensor combined(at::Tensor tensor, Call call) {
        if (auto buckets = buckets_.find(tensor)) {
            call.collective = Collective::all_reduce_bucket;
            AllReduce reduction = in_place(std::move(buckets), tensor, call);
            reduction.start();
            reduction.wait();
            return tensor;
        }
        call = calls_.begin(call).as(tensor.scalar_type());
        at::Tensor buffer = tensor.contiguous();
        const Reduction reduction{call.type, call.op, divisor(call.op)};
        if (links_.node() == nullptr) {
            MessageAllReduce messages(all_, buffer, call.op, reduction.divisor);
            messages.start();
            calls_.wait(all_, messages, call);
        } else if (links_.within_one_node()) {
            links_.node()->all_reduce(call, bytes_of(buffer), buffer.numel(), reduction);
        } else {
            links_.all_reduce_across(call, buffer, reduction.divisor);
        }
        copy_back(buffer, tensor);
        return tensor;
    }

    [[nodiscard]] at::Tensor combined_row(const at::Tensor& tensor, Call call) {
        call = call.as(tensor.scalar_type());
        const Slices slices = rows_of(tensor, size());
        const at::Tensor buffer = tensor.contiguous();
        at::Tensor row = at::empty(tensor.sizes().slice(1), tensor.options());
        const Reduction reduction{call.type, call.op, divisor(call.op)};
        if (links_.within_one_node()) {
            links_.node()->reduce_scatter(call, slices, bytes_of(buffer), bytes_of(row), reduction);
        } else if (links_.node() == nullptr) {
            MessageReduceScatter messages(all_, buffer.view({-1}), slices, row, reduction);
            messages.reserve();
            messages.begin();
            calls_.wait(all_, messages, call);
        } else { // fewer bytes between nodes than sending every rank its row
            at::Tensor copy = buffer.clone();
            links_.all_reduce_across(call, copy, reduction.divisor);
            row.copy_(copy[rank()]);
        }
        return row;
    }

    [[nodiscard]] Call begin_broadcast(const at::Tensor& tensor, int root) {
        Call call = checked(Collective::broadcast, tensor);
        call.which = static_cast<std::uint16_t>(require_rank(root, size()));
        return calls_.begin(call);
    }

    [[nodiscard]] AllReduce in_place(std::shared_ptr<SharedBuckets> buckets,
                                     const at::Tensor& tensor, const Call& call) {
        return {all_, calls_, call,
                BucketAllReduce(
                    {links_.node()->group(), links_.across(), links_.places().slices(), calls_},
                    std::move(buckets), tensor, call, divisor(call.op))};
    }

    Group all_;
    Calls calls_;
    Transport links_;
    GivenBuckets buckets_;
};

} // namespace rtrain::comm
