"""Recurrences of first order, in Numba's CUDA: a thread for each sequence, or several with chunks of rows in a tile.

Arrays are (outer, n, inner); step i is in row ``first`` + i ``turn``, its coefficient ``shift`` rows before. A tile in
shared memory has neighbouring sequences, a chunk of rows for each thread. Threads find what their chunks make of a
state before them, join that by a scan, and then every value comes from the one before, as in a plain loop. Where a part
cannot be trusted the tile is computed step by step, by one thread. Sequences that are cut into pieces go in three
phases: `fold` finds what pieces make, `carry` the states before them, and `tiles` the values.

Source: Blelloch (1990), Prefix sums and their applications.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, int32

from tridiag.kernels.numba_cuda.policies import Policy

THREADS = 128  # of a block
CHUNK = 9  # rows of a thread: an odd number, so that threads of a warp read from different banks


def columns(policy: Policy) -> Callable[..., None]:
    """With a thread for each sequence."""
    step, value, kept_state = policy.step, policy.value, policy.kept_state
    reads = policy.coefficients

    def run(a, x, y, states, given, first, turn, shift):
        sequence = cuda.grid(1)
        if sequence < states.shape[2]:
            o, i = sequence // x.shape[2], sequence % x.shape[2]
            state, none = kept_state(states[0], sequence), x.dtype.type(0)
            for k in range(x.shape[1]):
                row, factor = first + k * turn, none
                if reads and (given or k > 0):
                    factor = a[o, row - shift * turn, i]
                state = step(state, factor, x[o, row, i])
                y[o, row, i] = value(state)

    return run


def carry(policy: Policy) -> Callable[..., None]:
    """The states before pieces of ``rows`` rows, with a thread for each sequence, from the parts of pieces."""
    step, apply, known, kept = policy.step, policy.apply, policy.known, policy.kept
    keep_state, kept_state, reads = policy.keep_state, policy.kept_state, policy.coefficients

    def run(a, x, states, parts, trusted, rows, given, first, turn, shift):
        sequence = cuda.grid(1)
        if sequence < states.shape[2]:
            o, i = sequence // x.shape[2], sequence % x.shape[2]
            state, none = kept_state(states[0], sequence), x.dtype.type(0)
            for piece in range(states.shape[0] - 1):
                behind = apply(kept(parts[piece], sequence), state)
                if not (trusted[piece, sequence] and known(state) and known(behind)):
                    behind = state
                    for k in range(piece * rows, (piece + 1) * rows):
                        row, factor = first + k * turn, none
                        if reads and (given or k > 0):
                            factor = a[o, row - shift * turn, i]
                        behind = step(behind, factor, x[o, row, i])
                state = behind
                keep_state(states[piece + 1], sequence, state)

    return run


def tiles(policy: Policy, folding: bool = False) -> Callable[..., None]:
    """The values of pieces of ``rows`` rows, a whole number of tiles; or, ``folding``, what pieces make of a state.

    A block has a piece of ``width`` sequences. ``together``: rows lie side by side in memory, not sequences.
    """
    nothing, extend, join, apply, sound = policy.nothing, policy.extend, policy.join, policy.apply, policy.sound
    known, step, value, keep, kept = policy.known, policy.step, policy.value, policy.keep, policy.kept
    keep_state, kept_state, reads = policy.keep_state, policy.kept_state, policy.coefficients
    threads, chunk = THREADS, CHUNK
    words, state_words = policy.part_words, len(policy.start)
    room, beside = threads * chunk, threads * chunk if reads else 1

    def run(a, x, y, states, parts, trusted, rows, width, together, given, first, turn, shift):
        values = cuda.shared.array(room, x.dtype)
        factors = cuda.shared.array(beside, x.dtype)
        made = cuda.shared.array((words, threads), x.dtype)
        before = cuda.shared.array((state_words, threads), x.dtype)
        doubtful = cuda.shared.array(threads, int32)

        t, n, inner = cuda.threadIdx.x, x.shape[1], x.shape[2]
        count, pieces, none = threads // width, states.shape[0], x.dtype.type(0)
        if together:
            s, lane, apart, begin = t // count, t % count, 1, t // count * count * chunk
        else:
            s, lane, apart, begin = t % width, t // width, width, t % width
        piece, sequence = cuda.blockIdx.x % pieces, cuda.blockIdx.x // pieces * width + s
        there = sequence < states.shape[2]
        o, i = sequence // inner, sequence % inner
        if lane == 0 and there and not folding:
            keep_state(before, s, kept_state(states[piece], sequence))
        whole, certain = nothing(), True

        for low in range(piece * rows, min(n, (piece + 1) * rows), count * chunk):
            many = min(count * chunk, n - low) if there else 0  # rows of the tile
            if lane == 0:
                doubtful[s] = 0
            for k in range(lane, many, count):
                row = first + (low + k) * turn
                values[begin + k * apart] = x[o, row, i]
                if reads:
                    factors[begin + k * apart] = a[o, row - shift * turn, i] if given or low + k > 0 else none
            cuda.syncthreads()

            # what the chunks make, up to each
            own = nothing()
            for k in range(lane * chunk, min(many, lane * chunk + chunk)):
                own = extend(own, factors[begin + k * apart] if reads else none, values[begin + k * apart])
            certain = sound(own)
            keep(made, t, own)
            cuda.syncthreads()
            ahead = 1
            while ahead < count:
                if lane >= ahead:
                    own = join(kept(made, t - ahead * apart), own)
                    certain = certain and sound(own)
                cuda.syncthreads()
                keep(made, t, own)
                cuda.syncthreads()
                ahead *= 2

            if folding:
                whole = join(whole, own)  # of the last thread: what the tiles make
                certain = certain and sound(whole)
            else:
                state = past = kept_state(before, s)
                if lane > 0:
                    past = apply(kept(made, t - apart), state)
                certain = certain and known(past)
            if there and not certain:
                doubtful[s] = 1
            cuda.syncthreads()
            if folding:
                if lane == count - 1 and doubtful[s] != 0:
                    trusted[piece, sequence] = 0
                cuda.syncthreads()
            else:
                if doubtful[s] == 0:
                    low_row, high_row = lane * chunk, min(many, lane * chunk + chunk)
                else:  # the first thread takes all
                    past, low_row, high_row = state, 0, many if lane == 0 else 0
                for k in range(low_row, high_row):
                    past = step(past, factors[begin + k * apart] if reads else none, values[begin + k * apart])
                    values[begin + k * apart] = value(past)
                if there and lane == (count - 1 if doubtful[s] == 0 else 0):
                    keep_state(before, s, past)
                cuda.syncthreads()
                for k in range(lane, many, count):
                    y[o, first + (low + k) * turn, i] = values[begin + k * apart]

        if folding and lane == count - 1 and there:
            keep(parts[piece], sequence, whole)

    return run


def fold(policy: Policy) -> Callable[..., None]:
    """What pieces make of a state, and which of that cannot be trusted."""
    return tiles(policy, folding=True)


KERNELS: dict[str, Any] = {"columns": columns, "carry": carry, "fold": fold, "tiles": tiles}
