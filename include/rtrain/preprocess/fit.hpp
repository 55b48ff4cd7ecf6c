// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fits preprocessors: each rank gathers statistics of its blocks of rows, which are then merged in
/// block order. Blocks depend on row numbers alone, so the result is bit-identical for any number
/// of ranks.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/preprocess/columns.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::preprocess {

/// A preprocessor: usable in a Chain and in the training loop. State::add() also accepts it if it
/// has save(StateWriter&) const and load(const StateReader&).
template <class P>
concept Preprocessor = std::copy_constructible<P> &&
    requires(const P& preprocessor, const data::Batch& batch) {
    { preprocessor.transform(batch) } -> std::convertible_to<data::Batch>;
};

/// A preprocessor with a fit(): on one process, or collectively on all ranks.
template <class P>
concept Fittable = Preprocessor<P> &&
    requires(P& preprocessor, const data::Dataset& rows, HookRanks* ranks) {
    preprocessor.fit(rows, ranks);
};

} // namespace rtrain::preprocess

namespace rtrain::detail {

/// Rows per block, and the most rows that a rank keeps in memory at a time.
inline constexpr std::int64_t fit_block_rows = std::int64_t{64} * 1024;
inline constexpr std::int64_t fit_piece_rows = std::int64_t{4} * 1024;

/// Statistics of rows: add() takes the next rows of a block, merge() the statistics of the next
/// block.
template <class G>
concept Gathered = std::copyable<G> &&
    requires(G& gathered, const G& next, const data::Batch& batch, Packer& out, Unpacker& in) {
    gathered.add(batch);
    gathered.merge(next);
    next.pack(out);
    gathered.unpack(in);
};

/// Gathers the statistics of a block, starting from `empty`.
template <Gathered G>
[[nodiscard]] G gather_block(const data::Dataset& rows, std::int64_t block, G empty) {
    const std::int64_t end = std::min((block + 1) * fit_block_rows, rows.size());
    for (std::int64_t begin = block * fit_block_rows; begin < end; begin += fit_piece_rows) {
        empty.add(rows.rows(at::arange(begin, std::min(begin + fit_piece_rows, end), at::kLong)));
    }
    return empty;
}

/// Gathers the statistics of all rows, starting from `empty`. With `ranks` it is collective, and
/// rank r reads blocks r, r + size, ...; a block that cannot be read is an error on all ranks.
template <Gathered G>
[[nodiscard]] G gather(const data::Dataset& rows, HookRanks* ranks, const G& empty) {
    const c10::NoGradGuard no_grad;
    const std::int64_t blocks = (rows.size() + fit_block_rows - 1) / fit_block_rows;
    const std::int64_t size = ranks == nullptr ? 1 : ranks->size();
    G all = empty;
    for (std::int64_t first = 0; first < blocks; first += size) {
        if (size == 1) {
            all.merge(gather_block(rows, first, empty));
            continue;
        }
        Packer mine;
        succeed_together(*ranks, [&] {
            if (first + ranks->rank() < blocks) {
                gather_block(rows, first + ranks->rank(), empty).pack(mine);
            }
        });
        const auto packed = all_gather(*ranks, mine.bytes());
        for (std::int64_t block = first; block < std::min(first + size, blocks); ++block) {
            G part = empty;
            Unpacker bytes(packed[static_cast<std::size_t>(block - first)]);
            part.unpack(bytes);
            all.merge(part);
        }
    }
    return all;
}

/// Separate statistics for several columns.
template <class S>
class OfColumns {
public:
    explicit OfColumns(preprocess::Names columns, const S& empty = S())
        : columns_(std::move(columns)), statistics_(columns_.size(), empty) {}

    void add(const data::Batch& batch) {
        each([&](S& of, const std::string& name) { of.add(batch, name); });
    }
    void merge(const OfColumns& next) {
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            statistics_[i].merge(next.statistics_[i], columns_[i]);
        }
    }
    void pack(Packer& out) const {
        for (const S& of : statistics_) {
            of.pack(out);
        }
    }
    void unpack(Unpacker& in) {
        for (S& of : statistics_) {
            of.unpack(in);
        }
    }
    /// Calls `visit(statistics, name)` for each column.
    template <class Visit>
    void each(const Visit& visit) {
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            visit(statistics_[i], columns_[i]);
        }
    }

private:
    preprocess::Names columns_;
    std::vector<S> statistics_;
};

/// Returns the error for a column without a value in any row. It is the same on all ranks.
[[nodiscard]] inline DataError nothing_to_fit(const std::string& name) {
    return DataError("RT-D58", concat("column \"", name,
                                      "\" has no value in any row, so it cannot be fitted; "
                                      "check the data set, or omit the column"));
}

} // namespace rtrain::detail
