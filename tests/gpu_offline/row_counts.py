"""Instructions a row of the kernels that solve in chunks, counted in machine code for sm_90, and their warps.

Counted is what a thread runs for a chunk inside of a system, without a mask, whose certificate holds and whose
separators need no correction: of 100 000 systems of 100 rows, in arrays as NumPy makes them. Blocks of code that come
from lines which it does not run (`SKIPPED`) count nothing, those of a loop as often as it turns (`turns`), all others
once, whether or XX
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import nvrtc
import sass

from tridiag.cuda import instances, launcher, solvers
from tridiag.cuda.record import Kernel, Launch
from tridiag.cuda.struct import OPERANDS
from tridiag.problems.forms import Form

SOURCE, ARCHITECTURE = "chunks.cu", "sm_90"
SYSTEMS, ROWS = 100_000, 100
SHARED = (
    227 * 2**10
)  # bytes that a block may have on sm_90; a multiprocessor has a KiB more, and sets one aside for each
PARTITIONS, MOST_THREADS, MOST_BLOCKS = 4, 2048, 32  # of a multiprocessor
SKIPPED = (  # each line that has one of these
    "load_apart(chunk", "load_within(chunk",  # at the ends of a system, steps beyond 32 bits
    "kept_rows<R>(job, mask, first)", "cut(chunk, bits)", "< rows ?", "x[j] = bits >>", "(j < rest)",  # rows cut
    "job.length[k]", "system = outer", "return found + system",  # more batch axes than one
    "begin[b] + k)", "locate(job, k, s, i)", "within(i + bands", "offsets[s * OPERANDS +", "x[k] = tile[k]",  # crumbs
    "row.d = residual", "const T change = reduce_cyclically", "shared_before(change", "correct(chunk, separator",
    "if (CERTIFIED) separator_residual", "atomicOr(&", "doubt(job, part", "not_a_number(T(0))",  # what went wrong
)  # fmt: skip
OVER_SEPARATORS, OVER_OFFSETS, OVER_FLAGS, OVER_GROUPS = (
    "step < count; step *= 2", "k < part.width * OPERANDS", "k < width + 2", "for (Index group = blockIdx.x;;)"
)  # fmt: skip
STORE = "STG."  # what writes a solution to memory


class Shape(NamedTuple):
    """How systems are given to a kernel: the systems of a block, the chunks of a system."""

    launch: Launch
    width: int
    chunks: int


class Found(NamedTuple):
    instructions: float  # a row
    warps: int  # of a multiprocessor


def kernels() -> list[Kernel]:
    """Those that are counted."""
    facts = itertools.product(instances.REALS, instances.BOTH, instances.BOTH)
    return [instances.chunks(dtype, instances.CHUNKS[dtype][-1], *more) for dtype, *more in facts]


@functools.cache
def shapes() -> dict[Kernel, Shape]:
    found = {}
    for dtype, together, certified in itertools.product(instances.REALS, instances.BOTH, instances.BOTH):
        kind, shape = np.dtype(dtype), (SYSTEMS, ROWS) if together else (ROWS, SYSTEMS)
        strides = (kind.itemsize * shape[1], kind.itemsize)
        form = Form(shape, shape, int(together), pivoting="auto" if certified else False)
        extents = (*[shape] * 3, None, *[shape] * 2), (*[strides] * 3, None, *[strides] * 2)
        program = solvers.solution("chunks", form, *extents, (kind, kind), SHARED)
        for step, job in zip(program.steps, program.jobs, strict=True):
            if isinstance(step, Launch) and step.kernel.source == SOURCE:
                found[step.kernel] = Shape(step, int(job["width"]), int(job["count"]))
    return found


def numbers(text: str, words: str) -> set[int]:
    """The lines of a source that have these words."""
    found = {k for k, line in enumerate(text.splitlines(), 1) if words in line}
    assert found, f"no line of {SOURCE} has {words!r}: say anew what a chunk inside of a system does not run"
    return found


def turns(shape: Shape) -> dict[str, int]:
    """How often a thread turns in a loop, by words of its line."""
    return {
        OVER_SEPARATORS: (shape.chunks - 1).bit_length(),
        OVER_OFFSETS: -(-shape.width * OPERANDS // shape.launch.block),
        OVER_FLAGS: -(-(shape.width + 2) // shape.launch.block),
    }


def instructions(text: str, made: nvrtc.Compiled, shape: Shape) -> int:
    """Of a thread, for a chunk."""
    blocks = sass.blocks_of(made.cubin, made.names[shape.launch.kernel.name])
    skipped = set().union(*(numbers(text, words) for words in SKIPPED))
    run = sass.reached(blocks, skipped)
    times, within, known = dict.fromkeys(run, 1), run, []
    for loop in sass.loops(blocks, run):
        lines = set().union(*(one.lines for k in loop for one in blocks[k].instructions))
        found = [(over, count) for over, count in turns(shape).items() if numbers(text, over) & lines]
        if len(found) == 1:
            known.append(found[0][0])
            times |= dict.fromkeys(loop, found[0][1])
        else:
            assert shape.launch.in_turn and lines & numbers(text, OVER_GROUPS), f"a loop of {SOURCE} that is not known"
            within = loop
    assert known.count(OVER_SEPARATORS) == 1, "the separators' system is solved once, or a block was taken for another"
    assert any(STORE in one.text for k in within for one in blocks[k].instructions), (
        "a path that ends before the solution"
    )
    return sum(times[k] * len(blocks[k].instructions) for k in within)


def warps(registers: int, launch: Launch) -> int:
    """That a multiprocessor holds."""
    each = -(-launch.block // nvrtc.WARP)
    held = PARTITIONS * (nvrtc.REGISTERS // PARTITIONS // nvrtc.registers_of_block(registers, nvrtc.WARP))
    blocks = held // each, MOST_THREADS // nvrtc.WARP // each, (SHARED + 1024) // (launch.shared + 1024), MOST_BLOCKS
    return each * min(blocks)


def counted(among: Sequence[Kernel] = (), text: str = "") -> dict[str, Found]:
    """Of each kernel, by its name expression; of all, and of the source as it is, where nothing else is said."""
    among, text = among or kernels(), text or launcher.text(SOURCE)
    names = [kernel.name for kernel in among]
    made = nvrtc.compiled(text, names, ARCHITECTURE, (*launcher.options_of(SOURCE), sass.LINES))
    usage, found = nvrtc.usages(made.log), {}
    for kernel in among:
        shape, rows = shapes()[kernel], int(re.findall(r"\d+", kernel.name)[0])
        registers = usage[made.names[kernel.name]].registers
        found[kernel.name] = Found(round(instructions(text, made, shape) / rows, 1), warps(registers, shape.launch))
    return found
