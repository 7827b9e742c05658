"""That `kernel_code`, which compares the kernels of two checkouts, sees what differs and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kernel_code
import pytest
from kernel_code import compare, difference, normalized

import tridiag
from tridiag.kernels.table import KERNELS

ONE = """
source_filename = "one"
@"table of one" = common global i64 0
@unused = global i64 1
@text = internal constant [9 x i8] c"%1 @text\\00"
define i64 @"entry of one"(i64 %"a b", ptr %p) #0 {
first:
  %sum = add i64 %"a b", 1
  br i1 true, label %second, label %third
second:                                           ; preds = %first
  %called = call i64 @inner(i64 %sum, ptr @text) #1
  ret i64 %called
third:
  store i64 %sum, ptr @"table of one", !noalias !2
  %more = call i64 @malloc(i64 8)
  ret i64 %more
}
define internal i64 @inner(i64 %x, ptr %y) {
  %z = mul i64 %x, %x
  ret i64 %z
}
define internal i64 @nobody_calls_this(i64 %x) {
  ret i64 7
}
declare i64 @malloc(i64)
attributes #0 = { nounwind }
attributes #1 = { noinline }
!0 = distinct !{!0}
!1 = distinct !{!1, !0, !"_ZN3one4fooB2v3: %argument"}
!2 = !{!1}
"""
RENAMED = {
    '"table of one"': "table.2", '"entry of one"': "entry", "@inner": '@"an inner one"', '%"a b"': "%arg", "%sum": "%1",
    "first:": "0:", "%first": "%0", "second": "2", "third": "3", "@text,": "@other,", "@text =": "@other =",
    "ptr @text)": "ptr @other)", "#0": "#5", "#1": "#4", "!0": "!9", "!1": "!8", "v3": "v19",
    'filename = "one"': 'filename = "two"',
}  # fmt: skip


def in_other_words() -> str:
    text = ONE
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    functions = text.split("define ")
    return "define ".join([functions[0], functions[2], functions[1], *functions[3:]])


def test_names_and_places_do_not_matter() -> None:
    code = normalized(ONE, "entry of one")
    assert code == normalized(in_other_words(), "entry")
    assert 'c"%1 @text\\00"' in code and "@malloc" in code and "noinline" in code
    assert "unused" not in code and "ret i64 7" not in code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add i64", "sub i64"), ("store i64 %sum", "store i64 0"), ("%z = mul i64 %x, %x", "%z = mul i64 %x, 2"),
        ("{ noinline }", "{ cold }"), ("@malloc", "@calloc"),
        ("label %second, label %third", "label %third, label %second"),
        ("common global i64 0", "common global i64 1"), ("%1 @text", "%2 @text"), ("!1, !0,", "!1, !1,"),
    ],
)  # fmt: skip
def test_what_differs_is_found(old: str, new: str) -> None:
    assert old in ONE
    changed = normalized(ONE.replace(old, new), "entry of one")
    assert difference(normalized(ONE, "entry of one"), changed) is not None


def test_folders_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, sign in ((old, "fadd"), (new, "fsub")):
        folder.mkdir()
        (folder / "same.ll").write_text("define void @f0() {\n}\n")
        (folder / "changed.ll").write_text(f"define double @f0() {{\n  {sign}\n}}\n")
    (old / "gone.ll").write_text("")
    assert compare(old, new) == 1
    told = capsys.readouterr().out
    assert "changed: not equal" in told and "    -   fadd\n    +   fsub" in told and "define double @f0" in told
    assert f"gone: not equal\n    only in {old}" in told and "1 of 3 kernels: equal" in told
    assert compare(new, new) == 0


CODE = """define i64 @f0(i64 %0) {
  %2 = add nsw i64 %0, 16
  %3 = call i64 @f1(i64 %2), !noalias !{distinct !{!above0}}
  ret i64 %3
}

define internal i64 @f1(i64 %0) {
  ret i64 %0
}
"""


def test_functions_that_are_the_same_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Whatever they are called, and however their values are numbered; offsets only where asked."""
    moved = CODE.replace("@f1", "@f7").replace("%3", "%5").replace(" nsw", "")
    for folder, code in (("old", CODE), ("moved", moved), ("shifted", moved.replace("16", "24"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernel.ll").write_text(code)
    old, same, shifted = (tmp_path / name for name in ("old", "moved", "shifted"))
    assert kernel_code.main(["compare", str(old), str(same), "--by-function"]) == 0
    assert kernel_code.main(["compare", str(old), str(shifted), "--by-function"]) == 1
    assert kernel_code.main(["compare", str(old), str(shifted), "--but-offsets"]) == 0
    assert "kernel: 1 of 2 functions" in capsys.readouterr().out


def test_every_builder_is_known() -> None:
    """A kernel that the package can ask for, but not this tool, would never be compared."""
    pytest.importorskip("numba")
    builders: Any = kernel_code.kernels().values()
    known = {f"{build.module}.{build.function}".removeprefix("tridiag.kernels.") for build in builders}
    sources = [path.read_text() for path in Path(tridiag.__file__).parent.rglob("*.py")]
    asked = {name for source in sources for name in re.findall(r'made_by\(\s*"([\w.]+)"', source)}
    asked |= {family.builder for family in KERNELS.values()}
    assert len(asked) > 10 and asked <= known


def test_code_of_a_kernel() -> None:
    """Twice compiled it is the same, and other numbers in it are seen."""
    numba = pytest.importorskip("numba")

    def build(number: float) -> Any:
        def kernel(x):  # type: ignore[no-untyped-def]
            return x * number

        return numba.cfunc("float64(float64)")(kernel)

    assert kernel_code.code_of(build(2.5)) == kernel_code.code_of(build(2.5)) != kernel_code.code_of(build(3.5))


# ------------------------------------------------------------------------------------------------ for other processors

FUSED = Path("kernels/simd/fused.py")  # which asks whether the processor has such an instruction


def run_for(processor: str, *arguments: str) -> str:
    """What a Python process prints whose kernels are compiled for a processor, with what its name says and no more."""
    named = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, env=os.environ | named, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("processor", "has"), [("nehalem", False), ("haswell", True), ("skylake-avx512", True)])
def test_which_processors_multiply_and_add_at_once(processor: str, has: bool) -> None:
    if "x86_64" not in pytest.importorskip("llvmlite.binding").get_process_triple():
        pytest.skip("names of x86 processors")
    asked = "from tridiag.kernels.simd.processor import multiplies_and_adds as f; print(f(4), f(8))"
    assert run_for(processor, "-c", asked).split() == [str(has)] * 2


@pytest.mark.parametrize(("processor", "width"), [("nehalem", 16), ("haswell", 32), ("skylake-avx512", 64)])
def test_how_wide_registers_are(processor: str, width: int) -> None:
    if "x86_64" not in pytest.importorskip("llvmlite.binding").get_process_triple():
        pytest.skip("names of x86 processors")
    asked = "from tridiag.kernels.simd.processor import bytes_of_register as f; print(f())"
    assert run_for(processor, "-c", asked).split() == [str(width)]


def test_fused_operations_are_written_in_one_place() -> None:
    """Anywhere else a processor without them would call a function of the C library for every number."""
    root = Path(tridiag.__file__).parent
    written = {path.relative_to(root) for path in root.rglob("*.py") if re.search(r"""["'.]fma\b""", path.read_text())}
    features = Path("kernels/runtime/shipped.py")  # of processors, by their names
    assert written <= {FUSED, FUSED.with_name("processor.py"), features}


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", ["logarithms_*", "determinants_float*", "wavefront_linear_*", "wavefront_affine_float*"]
)
def test_no_fused_operations_for_a_processor_without_them(pattern: str, tmp_path: Path) -> None:
    """They would be calls: a sum of exponentials took 20 times as long."""
    if "x86_64" not in pytest.importorskip("llvmlite.binding").get_process_triple():
        pytest.skip("names of x86 processors")
    run_for("nehalem", kernel_code.__file__, "dump", str(tmp_path), pattern)
    codes = [path.read_text() for path in tmp_path.glob("*.ll")]
    assert codes and not any("llvm.fma." in code for code in codes)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("file", "cases"),
    [
        ("logarithms", "numba_scan-numpy and (values or errors or infinities or few_steps or coefficients)"),
        ("determinants", "float"),
        ("alignment", "numba_wavefront-numpy and (sum or recursion or lengths or range or temperatures)"),
    ],
)
def test_results_of_a_processor_without_fused_operations(file: str, cases: str) -> None:
    """The tests of these verbs, with kernels compiled for one: products are then exact by halves."""
    if "x86_64" not in pytest.importorskip("llvmlite.binding").get_process_triple():
        pytest.skip("names of x86 processors")
    here = Path(__file__).parent
    options = "-q", "-p", "no:cacheprovider", "-m", "slow or not slow", "-k", cases
    told = run_for(
        "nehalem", "-m", "pytest", "-c", str(here.parent / "setup.cfg"), *options, str(here / f"test_{file}.py")
    )
    assert " passed" in told
