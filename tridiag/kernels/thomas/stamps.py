"""Factors as arrays with a row for each matrix, whose rows may change places: stamps tell whether they belong together.

The factors of a group of matrices are one tile, and none of its matrices has a part of it for itself. An array of as
many rows as there are matrices, which holds the tiles one behind the other, may be permuted, selected from or stacked
like the diagonals themselves, and mean nothing then. So each matrix has a stamp, a word: whether it is certified, its
lane, how many lanes its group has, and a digest of the tile. Where the stamps of a group are not those of one tile, its
matrices are eliminated again. Few matrices have their factors for themselves, and their stamps say that.

A group that has not all lanes is packed: its rows of lanes are as short as the group, so that there is no padding.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import load, set_half_word, set_word, word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

# of a stamp, from its lowest bit on: whether it is uncertified, lane, lanes - 1, two marks, and the digest
LANE, LANES, MADE, ALONE, DIGEST = 1, 5, 9, 10, 11
OF_ITSELF = 1 << MADE | 1 << ALONE  # the stamp of a matrix that has its factors for itself
STREAMS, WORDS = 3, LINE // 8  # digests are of so many streams of lines side by side, each of so many words
FACTOR = 0x1E3779B97F4A7C15  # odd, with bits everywhere
LOOPS = Library("stamps")


def digest(code: Code, *words: Value) -> None:
    """``words``: where lines are, how many, a multiple of STREAMS, and where the line of each stream is to go."""
    source, count, target = words
    kind = ir.VectorType(ir.IntType(64), WORDS)

    def mixed(state: Value, line: Value) -> Value:
        product = (state + line) * FACTOR
        return Value(code, code.builder.xor(product.llvm, code.shift(product, -32).llvm))

    def lines(k: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
        at = source + k * LINE
        return tuple(mixed(state, code.load_as(kind, at + s * LINE)) for s, state in enumerate(states))

    start = tuple(Value(code, code.constant(kind, 1 + s)) for s in range(STREAMS))
    for s, state in enumerate(code.fori(0, count, lines, start, step=STREAMS)):
        code.store_as(target + s * LINE, state)


def unpack(code: Code, *words: Value) -> None:
    """Whole lines at ``target`` from ``count`` packed ones of ``used`` lanes."""
    source, target, count, used = words
    there = first_lanes(code, used)

    def line(k: Value, state: tuple[()]) -> tuple[()]:
        code.store_as(target + k * LINE, code.load_some(source + k * used * code.size_of_real, there))
        return state

    code.fori(0, count, line)


def pack(code: Code, *words: Value) -> None:
    """The reverse: ``source`` has whole lines."""
    source, target, count, used = words
    there = first_lanes(code, used)

    def line(k: Value, state: tuple[()]) -> tuple[()]:
        x = code.load_as(code.vector, source + k * LINE)
        code.store_some(target + k * used * code.size_of_real, x, there)
        return state

    code.fori(0, count, line)


DIGEST_OF, UNPACK, PACK = (LOOPS.add(body.__name__, body) for body in (digest, unpack, pack))


@compiled
def begin_stamps(job):
    """No matrix that is to be stamped has met a zero pivot yet."""
    if job.stamps != 0 and job.flags & J.FACTORING:
        for k in range(job.matrices):
            set_half_word(job.status + 4 * k, types.int32(0))


@compiled
def lines_of_tile(zero, job):
    """How many vectors the factors of a group are."""
    return 3 * job.rows * parts_of(zero, ())


@compiled
def is_packed(zero, job, used):
    """Whether the tile of a group with so many lanes is packed."""
    return job.stamps != 0 and used < lanes_of(zero, ())


@compiled
def tile_of(zero, job, worker, tile, used):
    """Where the factors of a group are, or are to be made: of a packed one, in the workspace."""
    if is_packed(zero, job, used):
        return worker.factors
    return job.factors + tile * job.rows * 3 * bytes_of_row(zero, ())


@compiled
def packed_at(zero, job, first):
    """Where the packed tile of the group from matrix ``first`` on begins."""
    return job.factors + first * job.rows * 3 * parts_of(zero, ()) * bytes_of_real(zero, ())


@compiled
def unpack_tile(zero, job, worker, first, used):
    UNPACK(zero, (packed_at(zero, job, first), worker.factors, lines_of_tile(zero, job), used))


@compiled
def pack_tile(zero, job, worker, first, used):
    PACK(zero, (worker.factors, packed_at(zero, job, first), lines_of_tile(zero, job), used))


@compiled
def stamp_of(used, digest):
    """The stamp of the first lane, if it is certified, of a group of ``used``."""
    return digest << DIGEST | 1 << MADE | (used - 1) << LANES


@compiled
def stamp_group(zero, job, worker, first, used, uncertified, factors):
    """Write the stamps of a group whose tile is made."""
    at, mixed = worker.buffer, 0 * used
    DIGEST_OF(zero, (factors, lines_of_tile(zero, job), at))
    for k in range(STREAMS * WORDS):
        mixed = (mixed ^ word(at + 8 * k)) * FACTOR
        mixed ^= mixed >> 32
    stamp = stamp_of(used, mixed)
    for lane in range(used):
        set_word(job.stamps + 8 * (first + lane), stamp | lane << LANE | (uncertified >> lane & 1))


@compiled
def stamp_groups(zero, job, worker, first, count):
    """The same of whole certified groups, so many matrices."""
    lanes = lanes_of(zero, ())
    for k in range(first, first + count, lanes):
        stamp_group(zero, job, worker, k, lanes, 0 * k, tile_of(zero, job, worker, k // lanes, lanes))


@compiled
def stamp_alone(job):
    """Write the stamps of matrices that have their factors for themselves."""
    for k in range(job.matrices if job.stamps != 0 else 0):
        set_word(job.stamps + 8 * k, OF_ITSELF | (load(job.certificates + k, types.uint8(0)) == J.UNCERTIFIED))


@compiled
def kinds_of(job, first, used):
    """The uncertified lanes of a group of factored matrices; -1 where stamps are not those of one tile."""
    uncertified = 0
    if job.stamps == 0:
        for lane in range(used):
            uncertified |= (load(job.certificates + first + lane, types.uint8(0)) == J.UNCERTIFIED) << lane
        return uncertified
    at, alike = job.stamps + 8 * first, True
    stamp = stamp_of(used, word(at) >> DIGEST)
    for lane in range(used):
        found = word(at + 8 * lane)
        uncertified |= (found & 1) << lane
        alike &= found >> LANE == stamp >> LANE | lane
    return uncertified if alike else -1


@compiled
def are_alone(job):
    """Whether all matrices have their factors for themselves."""
    alone = True
    for k in range(job.matrices if job.stamps != 0 else 0):
        alone &= word(job.stamps + 8 * k) | 1 == OF_ITSELF | 1
    return alone


@compiled
def is_certified_alone(job, matrix):
    """Whether a matrix is certified that has its factors for itself."""
    if job.stamps == 0:
        return load(job.certificates + matrix, types.uint8(0)) != J.UNCERTIFIED
    return word(job.stamps + 8 * matrix) == OF_ITSELF
