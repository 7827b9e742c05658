"""How much compiled loops keep on the stack for want of registers, on processors that have narrow ones."""

import subprocess
import sys

import pytest
import vector_spills
from vector_spills import BAR, BUDGET, SYSTEMS, spills

ASSEMBLY = {
    "x86": """
one:
\tpushq\t%rbp
\tvmovups\t%ymm3, 64(%rsp)
.LBB0_1:
\tvmovups\t%ymm3, 64(%rsp)
.LBB0_2:
\tvmovupd\t%ymm3, (%rax)
\tvaddpd\t64(%rsp), %ymm1, %ymm2
\tvmovapd\t%xmm0, -32(%rbp)
\tvmovapd\t%xmm0, -64(%rbp)
\tjne\t.LBB0_2
\tjmp\t.LBB0_1
two:
\tmovq\t%rax, 8(%rsp)
""",
    "arm": """
_one:
\tstp\td9, d8, [sp, #64]
\tstr\tq0, [sp, #32]
LBB0_1:
\tstur\tq1, [x29, #-32]
\tstr\tq0, [sp, #32]
\tstr\tq1, [x3]
\tcbnz\tx1, LBB0_1
two:
\tldr\tq0, [sp, #32]
""",
}


@pytest.mark.parametrize("assembly", ASSEMBLY.values(), ids=ASSEMBLY)
def test_what_is_counted(assembly: str) -> None:
    """Vectors that go to the stack in the innermost loop; not loads, other memory, or what is saved of the caller's."""
    assert spills(assembly) == {"one": 2}
    assert spills("L0:\n\tstp\tq1, q2, [sp]\n\tb.ne\tL0\n") == {"": 2}


def test_what_is_above_the_bar_has_a_reason() -> None:
    above = {name for processor in SYSTEMS for name, most in BUDGET[processor].items() if most > BAR}
    assert above == set(BUDGET["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize("processor", SYSTEMS)
def test_no_loop_of_a_product_has_more_than_its_budget(processor: str) -> None:
    """The cheapest kernel to compile, in a process that compiles for another processor."""
    command = [sys.executable, vector_spills.__file__, processor, "products_float64"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(told.split()[0]) <= BUDGET[processor]["products_float64"]
