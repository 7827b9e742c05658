"""No kernel is forgotten: each instance that the package can launch is in the lists of all checks, and runs in each.

`small_cases` launch all of them, here under four orders of threads, and with products fused; `test_sanitizers` has them
run under AddressSanitizer and UBSan, `benchmarks/gpu_lab.sh` under compute-sanitizer.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import built_together
import cpu_build
import nvrtc
import planted
import pytest
from helpers import STANDIN

if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import random_problems
import small_cases
import test_accuracy
import test_checker
import test_pivoted_chunks_checked
import test_sanitizers
import test_wavefront
from cupy import machine
from small_cases import TOLERANCE, BlockSystems, Case, Determinants, Filters, Gradients, Pairs, Sequence

from tridiag.backends import BACKENDS
from tridiag.calls import fast_path
from tridiag.cuda import launcher
from tridiag.cuda.instances import INSTANCES

FURTHER_SEEDS = range(1, 4)
BY_CUPY = tuple(name for name in BACKENDS if name.startswith("cupy_"))  # those whose kernels are of `tridiag/cuda/src`
WITH_BARRIERS = (*test_checker.SOURCES, test_pivoted_chunks_checked.SOURCE, test_wavefront.SOURCE)
GLOBAL = re.compile(r"__global__ void __launch_bounds__\(.*\) (\w+)\(Job job\)")


def template(name: str) -> str:
    return name.partition("<")[0]


TEMPLATES = {(kernel.source, template(kernel.name)) for kernel in INSTANCES}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    machine.seed = 0
    planted.uproot()
    planted.decide_anew()


# -------------------------------------------------------------------------------------------------- what there is


def test_instances_are_of_all_kernels_in_the_sources() -> None:
    texts = {path.name: path.read_text() for path in launcher.SOURCES.glob("*.cu")}
    assert {(source, name) for source, text in texts.items() for name in GLOBAL.findall(text)} == TEMPLATES
    assert sum(text.count("__global__") for text in texts.values()) == len(TEMPLATES)
    assert len({kernel.name for kernel in INSTANCES}) == len(INSTANCES)


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_all_have_a_budget(architecture: str) -> None:
    budget = json.loads(nvrtc.BUDGET.read_text())[architecture]
    assert {source: {*names} for source, names in budget.items()} == {
        source: {*names} for source, names in nvrtc.instances(architecture).items()
    }


# ------------------------------------------------------------------------------------------------------ what runs


def run_all(dtype: str, seeds: Iterable[int] = ()) -> None:
    """Each instance of a dtype is launched, none but those; nothing is wrong, under further seeds neither.

    Those are of the first case that launches an instance.
    """
    fast_path.forget()
    machine.launched.clear()
    for case in small_cases.cases(list(BY_CUPY), [dtype]):
        known = len(machine.launched)
        assert_right(case)
        for seed in seeds if len(machine.launched) > known else ():
            machine.seed = seed
            assert_right(case)
        machine.seed = 0
    assert machine.launched == {kernel.name for kernel in INSTANCES if built_together.dtype_of(kernel) == dtype}


def assert_right(case: Any) -> None:
    assert case.error() <= TOLERANCE[case.dtype], (case, machine.seed)


def test_the_same_cases_run_under_sanitizers() -> None:
    (run,) = (mark for mark in test_sanitizers.test_kernels_are_clean.pytestmark if mark.name == "parametrize")
    assert {*run.args[1]} == {(name, dtype) for name in BY_CUPY for dtype in BACKENDS[name].dtypes}
    assert {*small_cases.usable()} == {*BY_CUPY}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_all_run_under_every_order_of_threads(dtype: str) -> None:
    run_all(dtype, FURTHER_SEEDS)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_all_run_where_products_are_fused(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU rounds; tolerances are the same."""
    monkeypatch.setattr(cpu_build, "build", built_together.build)
    run_all(dtype)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", [name for name in BY_CUPY if "auto" in BACKENDS[name].pivoting])
def test_promises_are_kept_where_products_are_fused(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of `benchmarks/accuracy.py`, under the same bars."""
    pytest.importorskip("scipy")
    monkeypatch.setattr(cpu_build, "build", built_together.build)
    monkeypatch.syspath_prepend(test_accuracy.PATH.parent)
    accuracy = importlib.import_module("accuracy")
    rows = list(accuracy.measure(test_accuracy.SLICE, [(name, "cupy")], (dtype,)))
    assert {row.case for row in rows} == set(accuracy.CASES) and {row.promise for row in rows} == {"auto", "True"}
    assert [row for row in rows if not row.passed] == []


@pytest.mark.usefixtures("fused")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("verb", random_problems.VERBS)
def test_random_problems_where_products_are_fused(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cpu_build, "build", built_together.build)
    found = random_problems.run(300, 5000, verb)
    assert not found.wrong, capsys.readouterr().out


def test_random_problems_are_of_every_verb_that_they_run() -> None:
    verbs = {verb for name in BY_CUPY for verb in BACKENDS[name].verbs}
    assert verbs - {*random_problems.VERBS} == {"selective_scan"}  # linear recurrences
    assert {*random_problems.VERBS} - verbs == {"kalman.gradient"}


# ---------------------------------------------------------------------------------------------- planted mistakes


class Mistake(NamedTuple):
    """What a source is changed from and to, and what cases that show it are of: their class and some of their facts."""

    source: str
    old: str
    new: str
    kind: type
    facts: dict[str, Any]

    def cases(self) -> Iterator[Any]:
        for case in small_cases.cases(list(BY_CUPY), ["float64"]):
            if type(case) is self.kind and all(getattr(case, name) == fact for name, fact in self.facts.items()):
                yield case

    def shows(self) -> bool:
        return any(not case.error() <= TOLERANCE[case.dtype] for case in self.cases())


LONG, MANY = *small_cases.LONGER["cupy_pcr"], small_cases.FIRST_ORDER[-1]
MISTAKES = {  # in the code of each kernel
    "chunks": Mistake(
        "chunks.cu", "take(chunk.upper, tiles + 2 * size + own);", "", Case, {"backend": "cupy_pcr", "kind": "plain"}
    ),
    "reduce": Mistake("partition.cu", "rows[at] = row.a,", "rows[at] = T(0),", Case, {"shape": LONG}),
    "expand": Mistake("partition.cu", "chunk.right[R - 1] = separator;", "", Case, {"shape": LONG}),
    "thomas": Mistake(
        "thomas.cu",
        "uppers[piece * K + j] = carried.upper,",
        "uppers[piece * K + j] = T(0),",
        Case,
        {"backend": "cupy_thomas", "kind": "plain"},
    ),
    "pivoted": Mistake(
        "pivoted.cu", "exchange(pivot.swap, p1, b);", "", Case, {"backend": "cupy_thomas", "kind": "hard"}
    ),
    "determinants": Mistake(
        "pivoted.cu", "before = last, last = found, above = c;", "last = found, above = c;", Determinants, {}
    ),
    "pivoted_chunks": Mistake(
        "pivoted_chunks.cu",
        "system.solution(first + i) = kept.at(i, ITERATE);",
        "system.solution(first + i) = kept.at(i, RIGHT);",
        Case,
        {"backend": "cupy_pcr", "kind": "hard"},
    ),
    "linear": Mistake(
        "recurrences.cu", "before[k] = given ? init[k] : T(0);", "before[k] = T(0);", Sequence, {"order": 2}
    ),
    "logarithmic": Mistake("recurrences.cu", "WEIGHTED && given ?", "false ?", Sequence, {"shape": MANY}),
    "matrices": Mistake(
        "recurrences.cu", "if (!multiplies) continue;", "continue;", Sequence, {"verb": "matrix_recurrence"}
    ),
    "linear_tiles": Mistake(
        "scans.cu",
        "return job.given ? *first_row<T>(job, INIT, sequence) : T(0);",
        "return T(0);",
        Sequence,
        {"verb": "linear_recurrence", "order": 1},
    ),
    "logarithmic_tiles": Mistake(
        "scans.cu", "found.high = sum, found.low = low;", "found.high = sum + sum;", Sequence, {"verb": "logcumsumexp"}
    ),
    "weighted_tiles": Mistake(
        "scans.cu", "return {job.given ?", "return {false ?", Sequence, {"verb": "log_linear_recurrence"}
    ),
    "blocks": Mistake(
        "blocks.cu", "load<T, M>(rows, column, i + 1);", "load<T, M>(rows, column, i);", BlockSystems, {}
    ),
    "alignment": Mistake("alignment.cu", "diagonal = above.corner;", "", Pairs, {}),
    "filter": Mistake("filter.cu", "else if (lost) {", "else if (false) {", Filters, {}),
    "smoother": Mistake("smoother.cu", "row[i] = own[i];", "row[i] = load[i];", Filters, {}),
    "gradient": Mistake("gradient.cu", "if (correlated) sums.rejoin(observations);", "", Gradients, {}),
}


def test_every_kernel_has_a_planted_mistake() -> None:
    assert {(mistake.source, name) for name, mistake in MISTAKES.items()} == TEMPLATES
    assert {change[2] for change in test_sanitizers.BEYOND.values()} == {source for source, _ in TEMPLATES}


def test_every_barrier_is_taken_out_somewhere() -> None:
    assert {source for source, _ in TEMPLATES if planted.barriers(source)} == {*WITH_BARRIERS}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_shows(name: str) -> None:
    mistake = MISTAKES[name]
    planted.plant({mistake.source: planted.replacing(mistake.old, mistake.new)})
    machine.launched.clear()
    assert mistake.shows()
    assert name in map(template, machine.launched)
