"""What compiled loops do for want of wide registers: vectors on the stack, integers of masks; and stacks."""

import subprocess
import sys

import pytest
import vector_spills
from vector_spills import BAR, BUDGET, STACK, SYSTEMS, masks, spills, stack

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


def test_what_is_counted_of_masks() -> None:
    """Their bits as an integer in a loop; not a look whether there is any, or what comes before the loop."""
    x86 = (
        "one:\n\tvmovmskpd\t%ymm0, %eax\n.LBB0_1:\n\tvpmovmskb\t%xmm0, %ecx\n\tvtestpd\t%ymm1, %ymm1\n\tjne\t.LBB0_1\n"
    )
    arm = "one:\n\taddv\tb0, v0.8b\n.LBB0_1:\n\taddv\th0, v0.8h\n\tumaxv\tb1, v1.8b\n\tcbnz\tx1, .LBB0_1\n"
    assert masks(x86) == masks(arm) == {"one": 1}


def test_what_is_counted_of_stacks() -> None:
    """All that functions take, page by page too; not what lies there already. A size that is not written is refused."""
    one = "one:\n\tsub\tsp, sp, #2, lsl #12\n\tsub\tsp, sp, #16\n"
    code = f"{one}two:\n\tstp\tx29, x30, [sp, #-32]!\n\tstr\tx1, [sp, #8]\n"
    assert stack(code) == 2 * 4096 + 16 + 32
    with pytest.raises(AssertionError, match="only a call knows"):
        stack("\tsub\tsp, sp, x8\n")


@pytest.mark.parametrize("processor", SYSTEMS)
def test_no_budget_is_above_the_bar(processor: str) -> None:
    assert max(BUDGET[processor].values()) <= BAR


def test_integers_of_masks_have_a_reason() -> None:
    assert set(BUDGET["masks"]) == set(BUDGET["reasons"])


def test_threads_of_macos_have_stack_enough() -> None:
    """These have 512 KiB: with eight times as much as all functions of a kernel take, no other size is asked for."""
    assert max(BUDGET["stack"].values()) <= STACK == 2**19 // 8


# the cheapest kernel to compile, and those of filters whose steps keep the most
SOME = [(processor, "products_float64") for processor in SYSTEMS] + [
    (processor, name)
    for processor in ("haswell", "neoverse-n1")
    for name in ("filter_gradient4_2_missing_float64", "smoother4_2_missing_float64")
]


@pytest.mark.slow
@pytest.mark.parametrize(("processor", "name"), SOME)
def test_no_loop_has_more_than_its_budget(processor: str, name: str) -> None:
    """In a process that compiles for another processor."""
    command = [sys.executable, vector_spills.__file__, processor, name]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    counts = {what: [int(line.split()[0]) for line in told if what in line] for what in ("vectors", "masks", "stack")}
    assert max(counts["vectors"], default=0) <= BUDGET[processor][name]
    assert max(counts["masks"], default=0) <= BUDGET["masks"].get(name, 0)
    assert processor != "apple-m1" or counts["stack"] <= [BUDGET["stack"][name]]
