"""Which cases of the matrix of backends, array libraries, dtypes and layouts run at once; the others with ``-m slow``.

Cases that are named, by ``-k`` or as ``file::test``, run whatever is said here. At once run, of every test

- from NumPy arrays: all cases, in one dtype, that of its file in `DTYPE`;
- from arrays of JAX and PyTorch, for which compiled kernels are those of NumPy: one case of each compiled backend, in
  that dtype;
- of backends written in JAX, each case of which XLA compiles anew: one case of one of them, that of its file in
  `WRITTEN_IN_JAX`; of a test marked ``each`` one of each of them, of one marked ``one_rule`` of `jax_scan`.

One case is the middle one of those there are. Kernels for complex64 are those for complex128 with other numbers.
"""

import collections
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from helpers import Subject

USUAL = "float64"  # kernels of every dtype are compiled anew: files that need the same kernels share a dtype
DTYPE = {
    "test_accuracy.py": "float32",
    "test_alignment.py": "float32",
    "test_blocks.py": "complex128",
    "test_decades.py": "float32",
    "test_factor.py": "complex128",
    "test_gradients_torch.py": "complex128",
    "test_logarithms.py": "float32",
    "test_matrix_recurrence.py": "complex128",
    "test_underflow.py": "float32",
    "test_zeros.py": "float32",
}
WRITTEN_IN_JAX = {
    "test_accuracy.py": "jax_scan",
    "test_alignment.py": "jax_wavefront",
    "test_blocks.py": "jax_scan",
    "test_decades.py": "jax_scan",
    "test_errors.py": "jax_pcr",
    "test_factor.py": "jax_scan",
    "test_gradients_jax.py": "jax_fori",
    "test_isolation.py": "jax_fori",
    "test_jax_program.py": "jax_pcr",
    "test_kalman.py": "jax_scan",
    "test_kalman_accuracy.py": "jax_scan",
    "test_logarithms.py": "jax_associative",
    "test_matmul_slogdet.py": "jax_scan",
    "test_matrix_recurrence.py": "jax_associative",
    "test_properties.py": "jax_scan",
    "test_recurrence_gradients.py": "jax_scan",
    "test_recurrences.py": "jax_fori",
    "test_singular.py": "jax_lax",
    "test_solve.py": "jax_scan",
    "test_special_values.py": "jax_scan",
    "test_table.py": "jax_lax",
    "test_threads.py": "jax_pcr",
    "test_underflow.py": "jax_scan",
    "test_zeros.py": "jax_lax",
}


def subject_of(item: Any) -> Any:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    subject = params.get("backend", params.get("subject"))
    return subject if isinstance(subject, Subject) else None


def written_in_jax(subject: Subject) -> bool:
    return subject.library == "jax" and not subject.compiled


def grouped(items: Iterable[Any], *keys: Any) -> Iterator[list[Any]]:
    """The items of each test that have all keys in common."""
    groups: dict[tuple[Any, ...], list[Any]] = collections.defaultdict(list)
    for item in items:
        groups[item.path, item.originalname, *(key(item) for key in keys)].append(item)
    yield from groups.values()


def one_of(items: list[Any]) -> list[Any]:
    """All but the middle one."""
    return items[: len(items) // 2] + items[len(items) // 2 + 1 :]


def others(items: list[Any], value: Any, wanted: str) -> list[Any]:
    """All with another value than the wanted one; or if none has that, than the first."""
    values = [value(item) for item in items]
    chosen = wanted if wanted in values else values[0]
    return [item for item, found in zip(items, values, strict=True) if found != chosen]


def later(items: list[Any]) -> list[Any]:
    """The items that need not run at once."""
    waiting: list[Any] = []
    found = [item for item in items if subject_of(item) and not item.get_closest_marker("slow")]

    def wait(more: Iterable[Any]) -> None:
        gone = set(more)
        waiting.extend(gone)
        found[:] = [item for item in found if item not in gone]

    def name(item: Any) -> str:
        return subject_of(item).name

    def dtype(item: Any) -> Any:
        return item.callspec.params.get("dtype")

    waiting += [x for x in items if "complex64" in x.name and (subject_of(x) is None or subject_of(x).compiled)]
    wait(waiting[:])
    wait(
        item
        for item in found
        if item.get_closest_marker("one_rule") and written_in_jax(subject_of(item)) and name(item) != "jax_scan"
    )
    pure = [item for item in found if written_in_jax(subject_of(item))]
    each = [item for item in pure if subject_of(item).pretended or item.get_closest_marker("each")]
    for group in grouped(item for item in pure if item not in set(each)):
        wait(others(group, name, WRITTEN_IN_JAX.get(group[0].path.name, "")))
    real = [item for item in found if not subject_of(item).pretended and not written_in_jax(subject_of(item))]
    for group in grouped((item for item in real if isinstance(dtype(item), str)), subject_of):
        wait(others(group, dtype, DTYPE.get(group[0].path.name, USUAL)))
    for group in grouped(found, subject_of):
        subject = subject_of(group[0])
        if written_in_jax(subject) or (subject.compiled and subject.library != "numpy" and not subject.pretended):
            wait(one_of(group))
    return waiting


def are_named(config: pytest.Config) -> bool:
    """Whether somebody asks for these tests and no others."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)
