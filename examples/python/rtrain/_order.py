# SPDX-License-Identifier: Apache-2.0
"""The order of C++'s data::Permuted: which rows a rank reads in a step."""
from typing import Any, Tuple

_MASK = 2**64 - 1
_ROUNDS = 8
_LEAST_BITS = 7


def _mix_bits(x: Any) -> Any:
    """One step of SplitMix64, for an int or an array of uint64."""
    x = x + 0x9E3779B97F4A7C15 & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def hash_of(*numbers: int) -> int:
    """Hashes all of these numbers and their order."""
    result = 0
    for number in numbers:
        result = _mix_bits(result ^ _mix_bits(number & _MASK))
    return result


class Permutation:
    """C++'s data::Permutation: a permutation of [0, size), computed element by element from a key."""

    def __init__(self, size: int, key: int) -> None:
        self._size = size
        bits = max(_LEAST_BITS, (size - 1).bit_length())
        self._low_bits = bits // 2
        self._low_mask = (1 << self._low_bits) - 1
        self._high_mask = (1 << bits - self._low_bits) - 1
        self._keys = [hash_of(key, i) for i in range(_ROUNDS)]

    def rows(self, begin: int, end: int) -> Any:
        """The elements at positions [begin, end), as an array of int64."""
        import numpy
        numbers = self._permute(numpy.arange(begin, end, dtype=numpy.uint64))
        outside = numpy.flatnonzero(numbers >= self._size)
        while outside.size:
            numbers[outside] = self._permute(numbers[outside])
            outside = outside[numbers[outside] >= self._size]
        return numbers.astype(numpy.int64)

    def _permute(self, numbers: Any) -> Any:
        low, high = numbers & self._low_mask, numbers >> self._low_bits
        for i in range(0, _ROUNDS, 2):
            high = high ^ _mix_bits(low ^ self._keys[i]) & self._high_mask
            low = low ^ _mix_bits(high ^ self._keys[i + 1]) & self._low_mask
        return high << self._low_bits | low


class Steps:
    """C++'s data::Steps: divides an epoch into steps, and a step between ranks."""

    def __init__(self, rows: int, size: int, ranks: int, drop_last: bool = False, each_once: bool = False) -> None:
        self.rows = rows
        self.size = size  # of a rank's batch
        self.ranks = ranks
        self.drop_last = drop_last
        self.each_once = each_once

    def step_at(self, taken: int) -> int:
        """The number of rows in the step after the first `taken` rows; 0 at the end of the epoch."""
        left = max(self.rows - taken, 0)
        whole = self.size * self.ranks
        if left < whole:
            return 0 if self.drop_last else left
        return left if not self.drop_last and left - whole < self.ranks else whole

    def count(self, rank: int) -> int:
        """The number of batches of a rank in a whole epoch."""
        whole = self.size * self.ranks
        if self.rows < whole:
            return 0 if self.drop_last or (self.each_once and rank >= self.rows) else 1
        return self.rows // whole + (not self.drop_last and self.rows % whole >= self.ranks)

    def part(self, taken: int, rank: int) -> Tuple[int, int]:
        """The first position of a rank's batch in that step, and the one after its last."""
        step = self.step_at(taken)
        if step < self.ranks:
            if self.each_once:
                return taken + min(rank, step), taken + min(rank + 1, step)
            begin = taken + rank % step if step else taken
            return begin, begin + min(step, 1)
        return taken + step * rank // self.ranks, taken + step * (rank + 1) // self.ranks
