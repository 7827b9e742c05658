"""Every kernel that the package can ask for compiles for every architecture, cleanly and within its budget.

Local memory is the slowest there is, and needs nothing but one register too many or an array with an index that is not
known to the compiler: a spill or a stack frame costs more than most of what can be tuned.
"""

from __future__ import annotations

import json

import nvrtc
import pytest

from tridiag.cuda import launcher

pytestmark = pytest.mark.skipif(nvrtc.why_not() is not None, reason=str(nvrtc.why_not()))
HINT = "python tests/gpu_offline/nvrtc.py --write-budget"


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("source", nvrtc.instances())
def test_every_instance_is_clean_and_within_its_budget(source: str, architecture: str) -> None:
    known = json.loads(nvrtc.BUDGET.read_text())
    budget, threads = known[architecture].get(source, {}), nvrtc.instances(architecture)[source]
    usage, complaints = nvrtc.report_of_all(source, architecture)
    assert not complaints
    assert set(usage) == set(threads) == set(budget), f"instances without budget, or budgets without instance: {HINT}"
    in_memory = {name: one for name, one in usage.items() if one.spills or one.stack}
    assert not in_memory
    wide = {name: one.registers for name, one in usage.items() if one.registers > budget[name]}
    compilers = f"NVRTC {nvrtc.version()}; the budget is of {known['nvrtc']}"
    assert not wide, f"more registers than {[budget[name] for name in wide]} ({compilers}): {HINT}"
    too_many = {
        name: (one.registers, threads[name])
        for name, one in usage.items()
        if nvrtc.registers_of_block(one.registers, threads[name]) > nvrtc.REGISTERS
    }
    assert not too_many, "no multiprocessor has the registers of a block"


def test_pivoting_rounds_every_product() -> None:
    """As on a CPU. Fused with a difference, (1/3) 3 - 1 is not zero, and a singular matrix not singular."""
    sources = {
        "pivoted.cu": ["pivoted<double, Tridiagonal>", "pivoted<Complex<float>, Cyclic>"],
        "pivoted_chunks.cu": ["pivoted_chunks<double>"],
    }
    for source, names in sources.items():
        fused, rounded = (
            nvrtc.compiled(launcher.text(source), names, "sm_90", options).ptx
            for options in (launcher.OPTIONS, launcher.options_of(source))
        )
        assert "fma.rn" in fused and "fma.rn" not in rounded


BAD = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(double* x, int n) {
  double v[48];
  for (int i = 0; i < 48; i++) v[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; k++)
#pragma unroll
    for (int i = 0; i < 48; i++) v[i] = v[i] * v[(i + 7) % 48] + v[(i + 13) % 48];
  for (int i = 0; i < 48; i++) x[i * n + threadIdx.x] = v[i];
}
extern "C" __global__ void stacks(float* x, const int* where) {
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = x[i];
  for (int i = 0; i < 64; i++) v[where[i]] += 1;
  for (int i = 0; i < 64; i++) x[i] = v[i];
}
extern "C" __global__ void warns(float* x) { int unused; x[0] = 1; }
"""


def test_spills_stack_and_warnings_are_seen() -> None:
    """A test of this test: what it is to find, it finds."""
    usage, complaints = nvrtc.report(BAD, "sm_90", ["spills", "stacks", "warns"])
    assert usage["spills"].spills and usage["stacks"].stack and not any(usage["warns"][1:3])
    assert any("unused" in line for line in complaints)
    assert any("spill" in line.lower() for line in complaints)


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(nvrtc.CompileError, match="undeclared"):
        nvrtc.report("__global__ void f() { undeclared(); }", "sm_90", ["f"])


def test_registers_are_given_to_warps_in_lots() -> None:
    assert nvrtc.registers_of_block(64, 1024) == nvrtc.REGISTERS
    assert nvrtc.registers_of_block(65, 1024) > nvrtc.REGISTERS
    assert nvrtc.registers_of_block(10, 33) == 2 * 512
