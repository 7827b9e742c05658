"""The instructions a row of the kernels that solve in chunks, and their warps: within the budget, and what is aimed at.

Their aims are those of `budget.json`: few enough instructions for the memory to be what limits.
"""

from __future__ import annotations

import json
from typing import Any

import nvrtc
import pytest
import row_counts
import sass

from tridiag.cuda import launcher

pytestmark = pytest.mark.skipif(sass.why_not() is not None, reason=str(sass.why_not()))
HINT = "python tests/gpu_offline/nvrtc.py --write-rows"
# where registers leave room for fewer warps than are aimed at: what a chunk has in registers is on its way meanwhile
FEWER_WARPS = {kernel.name for kernel in row_counts.kernels()}


@pytest.fixture(scope="module")
def found() -> dict[str, row_counts.Found]:
    return row_counts.counted()


def budget() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(nvrtc.BUDGET.read_text())["rows"]
    return known


def test_rows_take_no_more_than_their_budget(found: dict[str, row_counts.Found]) -> None:
    known = budget()
    assert set(found) == set(known) - {"aims"}, HINT
    slower = {name: one for name, one in found.items() if one.instructions > known[name]["instructions"]}
    assert not slower, f"more instructions than {[known[name] for name in slower]}: {HINT}"
    fewer = {name: one for name, one in found.items() if one.warps < known[name]["warps"]}
    assert not fewer, f"fewer warps than {[known[name] for name in fewer]}: {HINT}"


def test_what_is_aimed_at_is_reached() -> None:
    known = budget()
    aims = known.pop("aims")
    for name, kept in known.items():
        aim = aims[name.partition("<")[2].partition(",")[0]]
        assert kept["instructions"] <= aim["instructions"]
        assert (kept["warps"] < aim["warps"]) == (name in FEWER_WARPS)


def test_an_instruction_more_a_row_is_seen(found: dict[str, row_counts.Found]) -> None:
    """Loads of an interior chunk that are kept within the system, which they are."""
    plain = "load_inside(chunk.lower, a, lower.row, i + lower.shift);"
    text = launcher.text(row_counts.SOURCE)
    assert plain in text
    text = text.replace(plain, "load_within<T, R>(chunk.lower, a, lower.row, i + lower.shift, n);")
    for name, one in row_counts.counted(row_counts.kernels()[::4], text).items():
        assert one.instructions > found[name].instructions + 1


def test_a_path_without_the_solution_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_counts, "STORE", "no such instruction")
    with pytest.raises(AssertionError, match="before the solution"):
        row_counts.counted(row_counts.kernels()[:1])
    with pytest.raises(AssertionError, match="no line"):
        row_counts.numbers(launcher.text(row_counts.SOURCE), "no such words")


LISTING = """
	//## File "source.cu", line 3
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
	//## File "source.cu", line 7 inlined at "source.cu", line 4
	//## File "source.cu", line 4
        /*0020*/                   IADD3 R0, R0, 0x1, RZ ;
        /*0030*/                   IADD3 R0, R0, 0x1, RZ ;
.L_x_1:
        /*0040*/                   BSYNC B0 ;
	//## File "source.cu", line 5
.L_x_2:
        /*0050*/                   FADD R1, R1, R1 ;
        /*0060*/              @!P1 BRA `(.L_x_2) ;
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
"""


def test_blocks_lines_and_loops_are_found() -> None:
    blocks = sass.parsed(LISTING)
    assert [block.following for block in blocks] == [[1, 2], [2], [3], [3, 4], [], [5]]
    assert [len(block.instructions) for block in blocks] == [2, 2, 1, 2, 1, 1]
    assert blocks[1].instructions[1].lines == {4, 7} and blocks[3].instructions[0].lines == {5}
    assert sass.reached(blocks, ()) == {0, 1, 2, 3, 4} and sass.reached(blocks, {4}) == {0, 2, 3, 4}
    assert sass.reached(blocks, {4, 5}) == {0, 2, 3, 4}  # a block to which there is no other way
    assert sass.reached(blocks, {4, 3, 7, 5}) == {0, 2, 3, 4}  # where both ways are skipped, the later
    assert sass.loops(blocks, sass.reached(blocks, ())) == [{3}]


def test_warps_are_what_registers_threads_and_shared_memory_leave() -> None:
    def warps(registers: int, block: int, shared: int = 0) -> int:
        kernel = row_counts.kernels()[0]
        return row_counts.warps(registers, row_counts.Launch(kernel, 1, block, shared))

    assert [warps(32, 1024), warps(64, 1024), warps(80, 256), warps(128, 256), warps(32, 32)] == [64, 32, 24, 16, 32]
    assert warps(96, 64) == 20 and warps(32, 256, 75 * 2**10) == 24
