"""The code of every compiled kernel, in a form in which that of two checkouts can be compared.

    python tests/kernel_code.py dump FOLDER [PATTERN ...]
    python tests/kernel_code.py compare FOLDER FOLDER

The package is that of this checkout. The code is LLVM's, optimized for this machine, with names that depend on nothing
but the code itself: functions, variables and values are numbered as they are met, from the function that is called. So
a kernel that is moved, or whose sources are written in other words, has equal code if it does the same. Each kernel is
compiled in a process of its own; with --together in one, in the given order or --reversed, which tells whether the code
of a kernel depends on others. A pattern is that of a shell: "thomas_*_float64". Matrices and blocks of up
to 8 rows, filters of SIZES; with --all of all sizes. Where a few functions were written anew, ``compare --by-function``
tells how many others are unchanged, and --but-offsets counts those too that only read their words at other places.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import itertools
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

REAL, DTYPES = ("float32", "float64"), ("float32", "float64", "complex64", "complex128")
SIDE_BY_SIDE = "interleaved", "pivoted", "masked", "pivoted_masked"
SOLVES = "rows", "masked_rows", *SIDE_BY_SIDE, "multiple_rhs", "few_matrices"
GAPS = "linear", "affine", "linear_parameters", "affine_parameters"
SIZES = (1, 1), (2, 1), (3, 2)  # of filters: states, observed values


# ----------------------------------------------------------------------------------------- what the package can ask for


def requests(whole: bool = False) -> Iterator[tuple[Any, ...]]:
    """The families of kernels, and what they are asked with."""
    from tridiag.backends import BACKENDS
    from tridiag.kernels.jobs.kalman import MANY
    from tridiag.kernels.jobs.recurrences import MOST_IN_VECTORS
    from tridiag.kernels.jobs.words import kalman, recurrences
    from tridiag.problems.forms import LARGEST

    for dtype in DTYPES:
        for kind in SOLVES:
            yield "thomas", dtype, kind
            yield "thomas_adjoint", dtype, kind
        for kind in SIDE_BY_SIDE:
            yield "row_blocks", dtype, kind
            yield "row_blocks_adjoint", dtype, kind
        yield "cyclic", dtype
        yield "determinants", dtype
        yield "inverse_entries", dtype
        yield "products", dtype
        yield "partition", dtype
        yield from (("parts", dtype, kind) for kind in ("reduce", "finish"))
        yield from (("totals", dtype, kind) for kind in ("linear", "transposed", "last_linear", "last_transposed"))
        yield from (("recurrence", dtype, order) for order in range(1, BACKENDS["numba_scan"].order + 1))
        sizes = range(2, LARGEST + 1) if whole else range(2, 9)
        yield from (("matrices", dtype, size) for size in sizes)
        yield from (("blocks", dtype, size) for size in sizes)
        yield from (("few_blocks", dtype, size) for size in range(2, recurrences.WRITTEN_OUT + 1))
    for dtype in REAL:
        yield "copies", dtype
        yield "logsumexp", dtype
        yield from (("selective", dtype), ("selective_adjoint", dtype))
        yield from (("totals", dtype, kind) for kind in ("logarithms", "weighted"))
        yield from (("constant", dtype, order) for order in range(1, MOST_IN_VECTORS + 1))
        yield from ((name, dtype) for name in ("filter_guard", "filter_unknown", "known_guard", "smoother_unknown"))
        yield from (("alignment", dtype, kind) for kind in GAPS)
        yield from ((family, dtype) for family in sorted({*itertools.chain(*MANY.values())}))
        most = range(1, kalman.WRITTEN_OUT + 1)
        for states, observed in itertools.product(most, most) if whole else SIZES:
            yield "update", dtype, states, observed
            if observed == 1:
                yield "predict", dtype, states
            for kind in (kalman.COMPLETE, kalman.MISSING, kalman.SHARED):
                families = ["filter", "filter_gradient"] + ["moments", "smoother", "stretch"] * (kind != kalman.SHARED)
                yield from ((family, dtype, states, observed, kind) for family in families)


def kernels(whole: bool = False) -> dict[str, Callable[[], Any]]:
    """By name: what builds each kernel that the package can ask for."""
    from tridiag.kernels import table
    from tridiag.kernels.runtime import object_cache

    return {
        "call": object_cache.made_by("runtime.python_entry.build"),
        "recall": object_cache.made_by("runtime.verb_entry.build"),
        **{table.name_of(*request): table.builder_of(*request) for request in requests(whole)},
        "xla_handler": object_cache.made_by("runtime.xla_handler.build"),
        "cuda_handler": object_cache.made_by("runtime.cuda_handler.build"),
    }


# ------------------------------------------------------------------------------------------------------------ the code

QUOTED = r'"(?:[^"\\]|\\.)*"'
GLOBAL = re.compile(rf"@({QUOTED}|[-\w$.]+)")
LOCAL = re.compile(rf"%({QUOTED}|[-\w$.]+)")
LABEL = re.compile(rf"^({QUOTED}|[-\w$.]+):")
NODE = re.compile(r"!(\d+)\b")
ATTRIBUTES = re.compile(r"#(\d+)\b")
COMMENT = re.compile(r"\s*; (preds = .*|No predecessors!)$")
MANGLED = re.compile(r'!"_Z[^":]*')  # the function for whose arguments a scope of aliases stands
ADDRESS = re.compile(r"inttoptr \(i64 \d{7,} to ptr\)")  # of this process: Numba's of a function handed to another one
TEXT = re.compile(r'\bc"(?:[^"\\]|\\.)*"')


def normalized(module: str, entry: str) -> str:
    """The code of a function of an LLVM module and of all that it reaches, under names that follow from it alone."""
    return Module(module).code(entry)


class Module:
    """The text of an LLVM module, by what it defines."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, list[str]] = {}
        self.variables: dict[str, str] = {}
        self.declared: set[str] = set()
        self.attributes: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        lines = iter(text.splitlines())
        for line in lines:
            name = bare(match[1]) if (match := GLOBAL.search(line)) else ""
            if line.startswith("define "):
                body = [line]
                while body[-1] != "}":
                    body.append(COMMENT.sub("", next(lines)))
                self.functions[name] = body
            elif line.startswith("declare "):
                self.declared.add(name)
            elif line.startswith("@"):
                self.variables[name] = line
            elif match := re.match(r"attributes #(\d+) = (.*)", line):
                self.attributes[match[1]] = match[2]
            elif match := re.match(r"!(\d+) = (.*)", line):
                self.nodes[match[1]] = match[2]
            elif line.startswith("%"):
                raise ValueError(f"a type with a name, which is not numbered: {line}")

    def code(self, entry: str) -> str:
        """Of a function and of what it reaches, in the order in which it is met."""
        numbers: dict[str, str] = {entry: "f0"}
        waiting, found = collections.deque([entry]), []

        def number(match: re.Match[str]) -> str:
            name = bare(match[1])
            if name not in numbers:
                ours = name in self.functions or name in self.variables
                numbers[name] = f"{'f' if name in self.functions else 'v'}{len(numbers)}" if ours else name
                if ours:
                    waiting.append(name)
            return f"@{numbers[name]}"

        while waiting:
            name = waiting.popleft()
            if name in self.functions:
                found += [GLOBAL.sub(number, line) for line in self.body(self.functions[name])]
            else:
                right = ADDRESS.sub("an address", self.variables[name].partition(" = ")[2])
                found.append(f"@{numbers[name]} = {self.references(right, number)}")
            found.append("")
        scopes: dict[str, str] = {}
        return "\n".join(
            MANGLED.sub(lambda match: scopes.setdefault(match[0], f'!"scope{len(scopes)}'), line) for line in found
        )

    def references(self, definition: str, number: Callable[[re.Match[str]], str]) -> str:
        """The definition of a variable, its texts as they are."""
        texts = TEXT.findall(definition)
        parts = [GLOBAL.sub(number, part) for part in TEXT.split(definition)]
        return "".join(itertools.chain(*itertools.zip_longest(parts, texts, fillvalue="")))

    def body(self, lines: Iterable[str]) -> Iterator[str]:
        """A function with its arguments, blocks and values numbered as they are met."""
        numbers: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            return f"%{numbers.setdefault(bare(match[1]), str(len(numbers)))}"

        for line in lines:
            if match := LABEL.match(line):
                yield LOCAL.sub(number, f"%{match[1]}") + line[match.end() - 1 :]
            else:
                line = LOCAL.sub(number, line)
                line = ATTRIBUTES.sub(lambda match: self.attributes[match[1]], line)
                yield NODE.sub(lambda match: self.node(match[1], ()), line)

    def node(self, name: str, above: tuple[str, ...]) -> str:
        """Metadata written out."""
        if name in above:
            return f"!above{above[::-1].index(name)}"
        return NODE.sub(lambda match: self.node(match[1], (*above, name)), self.nodes[name])


def bare(name: str) -> str:
    return name[1:-1] if name.startswith('"') else name


def code_of(compiled: Any) -> str:
    """Of a `numba.cfunc`."""
    return normalized(str(compiled._library._final_module), compiled.native_name)


# ------------------------------------------------------------------------------------------------------------ dump


def dump(job: tuple[str, Callable[[], Any], Path]) -> str:
    import llvmlite.binding as llvm

    from tridiag.kernels.jobs.words.symbols import INNER, PREFIX

    name, build, folder = job
    llvm.add_symbol(INNER, 1)
    for other in kernels():
        llvm.add_symbol(PREFIX + other, 1)  # which others call: it is not run
    (folder / f"{name}.ll").write_text(code_of(build()))
    return name


def dump_all(folder: Path, patterns: list[str], whole: bool, together: bool, backwards: bool, workers: int) -> int:
    import numba  # noqa: F401  (once, and not in each process)

    folder.mkdir(parents=True, exist_ok=True)
    found = kernels(whole)
    chosen = [name for name in found if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    jobs = [(name, found[name], folder) for name in (reversed(chosen) if backwards else chosen)]
    if together:
        done: Iterable[str] = map(dump, jobs)
    else:
        done = in_processes(jobs, workers)
    for k, name in enumerate(done, 1):
        print(f"{k} of {len(jobs)}: {name}", flush=True)
    return 0


def in_processes(jobs: list[Any], workers: int) -> Iterator[str]:
    """Each in a process of its own, which has what this one has imported."""
    context = multiprocessing.get_context("fork")
    running: dict[int, tuple[Any, str]] = {}
    for job in itertools.chain(jobs, itertools.repeat(None, workers)):
        while len(running) >= workers or (job is None and running):
            pid, status = os.wait()
            process, name = running.pop(pid)
            if status:
                raise SystemExit(f"{name} was not compiled")
            yield name
        if job is not None:
            process = context.Process(target=dump, args=(job,))
            process.start()
            running[process.pid or 0] = process, job[0]


# --------------------------------------------------------------------------------------------------------- compare


def difference(old: str, new: str) -> str | None:
    """The first line in which two codes differ, with those before it."""
    if old == new:
        return None
    before, after = old.splitlines(), new.splitlines()
    pairs = itertools.zip_longest(before, after, fillvalue="(the end)")
    k = next(k for k, (x, y) in enumerate(pairs) if x != y)
    function = next((line for line in reversed(before[:k]) if line.startswith("define ")), "")
    lines = [*([function] if function else []), *before[max(0, k - 3) : k]]
    ends = [(side[k] if k < len(side) else "(the end)") for side in (before, after)]
    return "\n".join([*(f"      {line}" for line in lines), f"    - {ends[0]}", f"    + {ends[1]}"])


def compare(old: Path, new: Path) -> int:
    names = [{path.stem for path in folder.glob("*.ll")} for folder in (old, new)]
    unequal = 0
    for name in sorted(names[0] | names[1]):
        if name not in names[0] or name not in names[1]:
            told: str | None = f"    only in {old if name in names[0] else new}"
        else:
            told = difference(*((folder / f"{name}.ll").read_text() for folder in (old, new)))
        if told is not None:
            unequal += 1
            print(f"{name}: not equal\n{told}")
    print(f"{len(names[0] | names[1]) - unequal} of {len(names[0] | names[1])} kernels: equal")
    return 1 if unequal else 0


NOTE = re.compile(r", !\w+(?:\.\w+)? !\{[^\n]*")  # what LLVM knows of aliases and branches
FLAGS = re.compile(r" (?:nsw|nuw|disjoint|captures\(none\))(?=[ ,)])")
NUMBERED = re.compile(r"%(\d+)|^(\d+):", re.MULTILINE)
OFFSET = re.compile(r"((?:add i64|getelementptr (?:\w+ )*i8, ptr) %\d+, (?:i64 )?)-?\d+")


def functions_of(code: str, offsets: bool) -> list[str]:
    """Each function by itself, whatever it calls, with values numbered anew; without its ``offsets`` too."""
    found = []
    for match in re.finditer(r"^define .*?^\}", code, re.DOTALL | re.MULTILINE):
        text = FLAGS.sub("", NOTE.sub("", match[0]))
        text = re.sub(r"scope\d+", "scope", re.sub(r"@[fv]\d+", "@", text))
        if offsets:
            text = OFFSET.sub(r"\1", text)
        numbers: dict[str, str] = {}
        text = NUMBERED.sub(lambda m, kept=numbers: "%" + kept.setdefault(m[1] or m[2], str(len(kept))), text)
        found.append("\n".join(line for line in text.splitlines() if "lifetime" not in line))
    return found


def compare_functions(old: Path, new: Path, offsets: bool) -> int:
    """How much of each kernel is the same, where a few functions were written anew: the other ones are unchanged."""
    others = 0
    for path in sorted(old.glob("*.ll"), key=lambda path: path.name):
        if (new / path.name).exists():
            codes = [functions_of((folder / path.name).read_text(), offsets) for folder in (old, new)]
            before, after = map(collections.Counter, codes)
            same = before & after
            lines = [sum(text.count("\n") * times for text, times in some.items()) for some in (same, before)]
            others += before.total() - same.total()
            print(f"{path.stem}: {same.total()} of {before.total()} functions, {lines[0]} of {lines[1]} lines")
    return 1 if others else 0


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    dumping = verbs.add_parser("dump")
    dumping.add_argument("folder", type=Path)
    dumping.add_argument("patterns", nargs="*")
    dumping.add_argument("--all", action="store_true", help="filters of all sizes")
    dumping.add_argument("--together", action="store_true", help="in one process")
    dumping.add_argument("--reversed", action="store_true")
    dumping.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--by-function", action="store_true", help="how much is the same, function by function")
    comparing.add_argument("--but-offsets", action="store_true", help="... whatever offsets are added to addresses")
    options = parser.parse_args(given)
    if options.verb == "compare" and (options.by_function or options.but_offsets):
        return compare_functions(options.old, options.new, options.but_offsets)
    if options.verb == "compare":
        return compare(options.old, options.new)
    return dump_all(options.folder, options.patterns, options.all, options.together, options.reversed, options.workers)


if __name__ == "__main__":
    sys.exit(main())
