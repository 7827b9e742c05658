"""Which cases of the matrix of backends, array libraries, dtypes and layouts run at once; the others with ``-m slow``.

Cases that are named, by ``-k`` or as ``file::test``, run whatever is said here. Those in `LONG` wait. At once run, of
every other test

- from NumPy arrays: all cases, in one dtype, that of its file in `DTYPE`; of `numba_partition`, whose kernel takes
  longest to compile, in float64 alone, and none of the tests of `OTHER_PRECISIONS`;
- from arrays of JAX and PyTorch, for which compiled kernels are those of NumPy: one case of each compiled backend, in
  that dtype;
- of backends written in JAX, each case of which XLA compiles anew, and whose algorithms are those of NumPy: of the
  tests that `IN_JAX` names for a file one case, of its backend; of those of other files, and of tests marked ``each``,
  one case of each;
- from arrays of JAX and PyTorch where no backend is named, and in the files of `ONE_DTYPE`: one dtype, as above;
- of a test in the files of `TRACED`, each case of which PyTorch or XLA traces anew: those of one compiled backend;
- of a test of more than `MANY` cases: a quarter of them, chosen by their names.

One case is the middle one of those there are. Kernels for complex64 are those for complex128 with other numbers.

What waits is more than CI has time for. Where `TIME` says how many seconds there are, some cases of every test come
first, then the others, and those that are left when the time is up are skipped.
"""

import collections
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from helpers import DTYPES, Subject
from long_tests import LONG

TIME = "TRIDIAG_TEST_SECONDS"  # in the environment
FIRST = 6  # cases of a test
MANY = 150  # cases of a test
USUAL = "float64"  # kernels of every dtype are compiled anew: files that need the same kernels share a dtype
DTYPE = {
    "test_matrix_recurrence.py": "complex128",
}
ONE_DTYPE = (
    "test_both_ends.py", "test_constant_coefficients.py", "test_conventions.py", "test_dask.py",
    "test_determinants.py", "test_factors_from_ends.py", "test_factors_of_jax_arrays.py", "test_filter_table.py",
    "test_gradients_torch.py", "test_hard_systems.py", "test_isolation.py", "test_judging.py",
    "test_kalman_at_rest.py", "test_many_cores.py", "test_many_states.py", "test_partition.py", "test_parts.py",
    "test_recurrence_kernels.py", "test_results_apart.py", "test_stamped_factors.py", "test_states_in_lanes.py",
    "test_stored_factors.py", "test_survival.py", "test_totals.py", "test_wide_determinants.py", "test_wide_rows.py",
    "test_windows.py",
)  # fmt: skip
IN_JAX = {
    "test_accuracy.py": ("jax_scan", ()),
    "test_alignment.py": ("jax_wavefront", ("test_gradients_are_differences", "test_the_sum_over_all_alignments")),
    "test_blocks.py": ("jax_scan", ("test_finite_differences_under_jax", "test_values")),
    "test_decades.py": ("jax_scan", ()),
    "test_errors.py": ("jax_pcr", ()),
    "test_factor.py": ("jax_scan", ("test_every_promise",)),
    "test_gradients_jax.py": (
        "jax_scan",
        (
            "test_a_factorization_differentiates", "test_complex_systems_differentiate",
            "test_finite_differences_forward_and_reverse", "test_log_determinants_differentiate",
            "test_one_bad_system_reaches_no_other_gradient", "test_options_differentiate",
            "test_vmap_over_other_axes_and_within_vmap",
        ),
    ),
    "test_isolation.py": ("jax_fori", ("test_one_singular_system_anywhere", "test_pads_are_never_read")),
    "test_kalman.py": (
        "jax_scan",
        ("test_moments_of_one_series", "test_nan_in_a_model_is_its_own", "test_results_are_pytrees_under_jit"),
    ),
    "test_kalman_accuracy.py": ("jax_scan", ("test_a_state_that_grows_unobserved",)),
    "test_kalman_unknown.py": ("jax_scan", ("test_what_is_hardly_seen_at_first",)),
    "test_logarithms.py": ("jax_associative", ("test_finite_differences_under_jax", "test_values")),
    "test_matmul_slogdet.py": ("jax_scan", ("test_determinants",)),
    "test_matrix_recurrence.py": ("jax_associative", ("test_finite_differences_under_jax", "test_values")),
    "test_overflow.py": ("jax_scan", ()),
    "test_properties.py": ("jax_scan", ()),
    "test_recurrence_gradients.py": (
        "jax_scan",
        (
            "test_finite_differences_under_jax", "test_gradients_under_vmap_and_jit",
            "test_the_final_value_has_a_gradient",
        ),
    ),
    "test_recurrences.py": (
        "jax_fori",
        ("test_higher_orders", "test_values", "test_the_final_value_continues_the_sequence"),
    ),
    "test_selective_scan.py": (
        "jax_scan",
        ("test_finite_differences_under_jax", "test_what_would_multiply_nothing_is_not_read"),
    ),
    "test_singular.py": ("jax_lax", ("test_inside_a_trace_singular_systems_are_nan",)),
    "test_solve.py": (
        "jax_scan",
        ("test_any_axis", "test_broadcasting", "test_dtypes", "test_periodic", "test_transpose", "test_where"),
    ),
    "test_special_values.py": ("jax_scan", ("test_gradients_of_logarithms",)),
    "test_threads.py": ("jax_pcr", ("test_concurrent_calls_inside_jit",)),
    "test_underflow.py": ("jax_scan", ()),
    "test_zeros.py": ("jax_lax", ()),
}  # fmt: skip
OTHER_PRECISIONS = (  # tests whose cases compute in other dtypes than they say, or do not say
    "test_gradients_keep_the_dtype", "test_halves_come_back_as_they_came",
    "test_integers_beside_numbers_promote_as_in_their_library", "test_integers_promote_as_in_their_library",
    "test_lazy_conjugates_and_negatives_are_written_as_they_read", "test_overwrite_d_returns_d",
    "test_single_and_double_promote", "test_what_a_half_cannot_hold_is_infinite_without_a_warning",
)  # fmt: skip
TRACED = ("test_gradients_jax.py", "test_torch_compile.py")


def subject_of(item: Any) -> Any:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    subject = params.get("backend", params.get("subject"))
    return subject if isinstance(subject, Subject) else None


def library_of(item: Any) -> Any:
    return item.callspec.params.get("library") if hasattr(item, "callspec") else None


def written_in_jax(subject: Subject) -> bool:
    return subject.library == "jax" and not subject.compiled


def dtype_of(item: Any) -> Any:
    """What a case says of its dtype, in whichever parameter."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((value for value in values if isinstance(value, str) and value in DTYPES), None)


def is_told_by_numpy(item: Any) -> bool:
    """Whether a case of a backend that is written in JAX is of a test that need not compile it."""
    _, tests = IN_JAX.get(item.path.name, ("", (item.originalname,)))
    return item.originalname not in tests and not item.get_closest_marker("each")


def in_one_dtype(item: Any) -> bool:
    """Whether a case is of a test of all dtypes, of which one runs at once, though it names no backend."""
    anew = subject_of(item) is None and library_of(item) in ("jax", "torch")
    return dtype_of(item) is not None and (anew or (item.path.name in ONE_DTYPE and library_of(item) != "cupy"))


def in_other_precision(item: Any) -> bool:
    return dtype_of(item) not in (None, USUAL) or item.originalname in OTHER_PRECISIONS


def grouped(items: Iterable[Any], *keys: Any) -> Iterator[list[Any]]:
    """The items of each test that have all keys in common."""
    groups: dict[tuple[Any, ...], list[Any]] = collections.defaultdict(list)
    for item in items:
        groups[item.path, item.originalname, *(key(item) for key in keys)].append(item)
    yield from groups.values()


def one_of(items: list[Any]) -> list[Any]:
    """All but the middle one."""
    return items[: len(items) // 2] + items[len(items) // 2 + 1 :]


def three_quarters(items: list[Any]) -> list[Any]:
    """All but a quarter, whatever their order."""
    return sorted(items, key=number_of)[len(items) // 4 :]


def number_of(item: Any) -> int:
    """Of the name of a case, as if drawn."""
    return zlib.crc32(item.name.encode())


def others(items: list[Any], value: Any, wanted: str) -> list[Any]:
    """All with another value than the wanted one; or if none has that, than the first."""
    values = [value(item) for item in items]
    chosen = wanted if wanted in values else values[0]
    return [item for item, found in zip(items, values, strict=True) if found != chosen]


def takes_long(item: Any) -> bool:
    """Whether `LONG` names a case, its test, or how it begins."""
    return any(is_named(item, name) for name in LONG.get(item.path.name, ()))


def is_named(item: Any, name: str) -> bool:
    if "[" not in name:
        return bool(item.originalname == name)
    return bool(item.name == name or (name[-1] != "]" and item.name.startswith(name)))


def unknown(items: list[Any]) -> list[str]:
    """What `LONG` names and no module that is here has."""
    here = collections.defaultdict(list)
    for item in items:
        here[item.path.name].append(item)
    names = ((file, name) for file, names in LONG.items() if file in here for name in names)
    return [f"{file}::{name}" for file, name in names if not any(is_named(item, name) for item in here[file])]


def later(items: list[Any]) -> list[Any]:
    """The items that need not run at once."""
    if strangers := unknown(items):
        raise pytest.UsageError(f"tests/at_once.py names tests that are not here: {', '.join(strangers)}")
    waiting: list[Any] = [item for item in items if takes_long(item)]
    found = [item for item in items if subject_of(item) and not item.get_closest_marker("slow")]

    def wait(more: Iterable[Any]) -> None:
        gone = set(more)
        waiting.extend(gone)
        found[:] = [item for item in found if item not in gone]

    def name(item: Any) -> str:
        return subject_of(item).name

    for group in grouped((x for x in items if in_one_dtype(x)), library_of, subject_of):
        waiting += others(group, dtype_of, DTYPE.get(group[0].path.name, USUAL))
    waiting += [x for x in items if "complex64" in x.name and (subject_of(x) is None or subject_of(x).compiled)]
    wait(waiting[:])
    wait(item for item in found if written_in_jax(subject_of(item)) and is_told_by_numpy(item))
    pure = [item for item in found if written_in_jax(subject_of(item))]
    each = [item for item in pure if subject_of(item).pretended or item.get_closest_marker("each")]
    told = set(each)
    wait(
        item
        for group in grouped(item for item in pure if item not in told)
        for item in others(group, name, IN_JAX.get(group[0].path.name, ("", ()))[0])
    )
    real = [item for item in found if not subject_of(item).pretended and not written_in_jax(subject_of(item))]
    wait(
        item
        for group in grouped((item for item in real if dtype_of(item)), subject_of)
        for item in others(group, dtype_of, DTYPE.get(group[0].path.name, USUAL))
    )
    wait(item for item in real if name(item) == "numba_partition" and in_other_precision(item))
    traced = (x for x in found if x.path.name in TRACED and not written_in_jax(subject_of(x)))
    wait(item for group in grouped(traced) for item in others(group, name, "numba_thomas"))
    wait(item for group in grouped(found, subject_of) if of_one_case(subject_of(group[0])) for item in one_of(group))
    waits, others_choose = set(waiting), ("slow", "smoke", "gpu_offline", "gpu_toolchains")
    at_once = (x for x in items if x not in waits and not any(map(x.get_closest_marker, others_choose)))
    for group in grouped(at_once):
        if len(group) > MANY:
            waiting += three_quarters(group)
    return waiting


def of_one_case(subject: Subject) -> bool:
    """Whether one case of a test tells what the others do."""
    elsewhere = subject.library != "numpy" and not subject.pretended
    return written_in_jax(subject) or (subject.compiled and elsewhere)


def first_of_every_test(items: list[Any], processes: int) -> list[Any]:
    """The same in the order in which they are run for as long as there is time, by each of some processes.

    Of a test some cases, chosen by their names, come before those of others. Modules stay together in either part, as
    what they compile is kept for a module, and every process begins with a part of its own.
    """
    ranks: dict[Any, int] = {}
    for group in grouped(items):
        group.sort(key=number_of)
        ranks |= {item: rank for rank, item in enumerate(group)}
    modules = list(dict.fromkeys(item.path for item in items))
    place = {path: k % processes for k, path in enumerate(modules)}
    return sorted(items, key=lambda item: (place[item.path], ranks[item] >= FIRST))


def are_named(config: pytest.Config) -> bool:
    """Whether somebody asks for these tests and no others."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)
