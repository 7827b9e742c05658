"""Which cases of the matrix of backends, array libraries, dtypes and layouts run at once; the others with ``-m slow``.

Cases that are named, by ``-k`` or as ``file::test``, run whatever is said here. Those in `LONG` wait. At once run, of
every other test

- from NumPy arrays: all cases, in one dtype, that of its file in `DTYPE`;
- from arrays of JAX and PyTorch, for which compiled kernels are those of NumPy: one case of each compiled backend, in
  that dtype;
- of backends written in JAX, each case of which XLA compiles anew: one case of one of them, that of its file in
  `WRITTEN_IN_JAX`; of a test marked ``each`` one of each of them, of one marked ``one_rule`` of `jax_scan`; none of the
  tests in `OF_THE_ALGORITHM`, which is one text with that of the other libraries;
- from arrays of JAX and PyTorch where no backend is named: one dtype, as above;
- of a test in the files of `TRACED`, each case of which PyTorch traces anew: those of one backend.

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

TRACED = ("test_torch_compile.py",)
LONG = {  # tests, or cases of them, that take many seconds, and look once more at what others look at
    "test_accuracy.py": ("test_backends_keep_their_promises[jax_scan-jax-float64]",),
    "test_alignment.py": ("test_forward_mode_second_order_and_vmap",),
    "test_command_line.py": (
        "test_every_suite_rehearses[logcumsumexp]",
        "test_gradients_are_compared_in_libraries_that_have_them",
        "test_pictures_of_a_problem",
    ),
    "test_failures.py": (
        "test_one_trouble_of_each_kind",
        "test_the_interpreter_ends_while_threads_are_in_kernels[calls at exit]",
    ),
    "test_guard.py": ("test_a_rehearsal_finds_what_was_written", "test_another_machine_is_told"),
    "test_judging.py": ("test_cases_that_were_judged_wrongly",),
    "test_kalman.py": (
        "test_compiled_gradients_are_those_of_a_scan[shared]",
        "test_second_derivatives",
    ),
    "test_recurrence_gradients.py": ("test_second_differences_of_order_3_under_jax",),
    "test_solve.py": ("test_memory_layouts_of_torch[numba_partition-torch]",),
    "test_survival.py": ("test_more_threads_than_helpers_are_kept_for[numba_partition]",),
}
OF_THE_ALGORITHM = {  # seconds of XLA each, for what the same text in NumPy tells at once
    "test_alignment.py": (
        "test_a_score_without_bound", "test_affine_gaps_that_cost_as_much_as_linear_ones", "test_infinities_and_nan",
        "test_lengths", "test_long_sequences_leave_no_range", "test_low_temperatures_are_the_classic_score",
        "test_no_temperature_is_too_low", "test_temperatures_of_any_size_with_scores_of_any_size",
        "test_the_gradient_alone_is_that_beside_others", "test_the_recursion", "test_ties_share_the_gradient",
        "test_what_is_forbidden_stays_so_at_low_temperatures",
    ),
    "test_blocks.py": (
        "test_a_real_matrix_with_complex_right_sides", "test_arrays_of_any_strides",
        "test_blocks_of_one_row_are_a_tridiagonal_system", "test_complex_finite_differences_under_jax",
        "test_halves_come_back_as_they_came", "test_rows_are_exchanged_between_blocks", "test_the_ends_are_never_read",
        "test_the_solution_of_systems_in_good_condition",
    ),
    "test_factor.py": (
        "test_a_few_hard_systems_among_easy_ones", "test_an_axis_from_the_front_is_that_of_the_matrix", "test_halves",
        "test_it_is_mapped_as_a_pytree", "test_pads_and_masked_rows_are_never_read", "test_periodic",
        "test_right_sides_broadcast", "test_right_sides_of_other_dtypes", "test_systems_that_keep_no_row",
    ),
    "test_gradients_jax.py": (  # the rules are above the backends: a compiled one tells as much
        "test_a_backend_may_compute_the_whole_rule_in_one_pass", "test_a_factorization_passes_through_jit_and_vmap",
        "test_a_scan_over_time_differentiates", "test_finite_differences_where_pivoting_is_needed",
        "test_gradients_of_the_weights_of_a_gradient", "test_gradients_within_vmap_and_vmap_within_gradients",
        "test_hessian", "test_jacobians_forward_and_reverse_agree",
        "test_log_determinants_do_not_see_pads_and_masked_rows", "test_nan_in_masked_rows_reaches_nothing",
        "test_nan_in_the_pads_reaches_nothing", "test_second_order_in_every_mix_of_modes",
        "test_shared_arguments_collect_their_gradients", "test_vmap_over_every_subset_of_the_arguments",
    ),
    "test_kalman.py": (
        "test_a_model_of_many_series_may_serve_one", "test_batches_of_moments", "test_batches_of_series_and_models",
        "test_exact_observations_of_a_singular_model", "test_gradients_of_models_that_series_share_or_not",
        "test_jit_and_vmap", "test_statsmodels", "test_violations_inside_a_trace_are_nan",
    ),
    "test_kalman_accuracy.py": ("test_gradients_keep_digits",),
    "test_logarithms.py": (
        "test_coefficients_that_outweigh_what_was_before", "test_gradients_of_long_sequences",
        "test_infinite_coefficients", "test_infinite_coefficients_of_long_sequences",
        "test_second_differences_under_jax", "test_the_first_coefficient_is_not_read_without_init",
    ),
    "test_matrix_recurrence.py": (
        "test_broadcasting", "test_companion_matrices_are_a_recurrence_of_higher_order",
        "test_complex_finite_differences_under_jax", "test_finite_where_the_sequence_is",
        "test_halves_come_back_as_they_came", "test_real_matrices_of_complex_vectors",
        "test_second_differences_under_jax", "test_the_final_value_continues_the_sequence",
    ),
    "test_singular.py": (
        "test_a_neumann_problem_is_singular_and_regular_with_a_row_out", "test_a_periodic_laplacian_with_a_row_out",
        "test_a_periodic_matrix_whose_open_part_is_singular", "test_a_singular_complex_system",
        "test_nearly_singular_returns_the_large_solution", "test_the_axis_is_left_out_of_the_indices",
        "test_without_batch_axes",
    ),
    "test_solve.py": (
        "test_a_mask_of_one_boolean", "test_a_real_matrix_with_complex_right_sides",
        "test_a_shared_matrix_gives_what_copies_of_it_give", "test_borders_of_periodic_systems_do_not_grow",
        "test_dtypes_with_exchanges", "test_few_rows", "test_periodic_solutions_that_grow_and_decay",
        "test_periodic_systems_that_need_pivoting_among_others", "test_single_and_double_promote",
        "test_systems_that_need_pivoting", "test_where_periodic", "test_where_transposed", "test_where_with_exchanges",
    ),
    "test_underflow.py": (
        "test_a_quotient_with_one_digit_left", "test_factors_with_one_digit_left", "test_the_other_quotient",
    ),
    "test_zeros.py": (
        "test_a_long_system", "test_between_rows_that_are_taken_out", "test_from_factors",
        "test_one_matrix_for_many_right_sides", "test_periodic", "test_transposed",
    ),
}  # fmt: skip


def subject_of(item: Any) -> Any:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    subject = params.get("backend", params.get("subject"))
    return subject if isinstance(subject, Subject) else None


def library_of(item: Any) -> Any:
    return item.callspec.params.get("library") if hasattr(item, "callspec") else None


def written_in_jax(subject: Subject) -> bool:
    return subject.library == "jax" and not subject.compiled


def of_the_algorithm(item: Any) -> bool:
    return item.originalname in OF_THE_ALGORITHM.get(item.path.name, ())


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
    waiting: list[Any] = [x for x in items if {x.name, x.originalname} & set(LONG.get(x.path.name, ()))]
    found = [item for item in items if subject_of(item) and not item.get_closest_marker("slow")]

    def wait(more: Iterable[Any]) -> None:
        gone = set(more)
        waiting.extend(gone)
        found[:] = [item for item in found if item not in gone]

    def name(item: Any) -> str:
        return subject_of(item).name

    def dtype(item: Any) -> Any:
        return item.callspec.params.get("dtype") if hasattr(item, "callspec") else None

    no_backend = [
        x for x in items if not subject_of(x) and library_of(x) in ("jax", "torch") and isinstance(dtype(x), str)
    ]
    for group in grouped(no_backend, library_of):
        waiting += others(group, dtype, DTYPE.get(group[0].path.name, USUAL))
    waiting += [x for x in items if "complex64" in x.name and (subject_of(x) is None or subject_of(x).compiled)]
    wait(waiting[:])
    wait(
        item
        for item in found
        if item.get_closest_marker("one_rule") and written_in_jax(subject_of(item)) and name(item) != "jax_scan"
    )
    wait(item for item in found if written_in_jax(subject_of(item)) and of_the_algorithm(item))
    pure = [item for item in found if written_in_jax(subject_of(item))]
    each = [item for item in pure if subject_of(item).pretended or item.get_closest_marker("each")]
    for group in grouped(item for item in pure if item not in set(each)):
        wait(others(group, name, WRITTEN_IN_JAX.get(group[0].path.name, "")))
    real = [item for item in found if not subject_of(item).pretended and not written_in_jax(subject_of(item))]
    for group in grouped((item for item in real if isinstance(dtype(item), str)), subject_of):
        wait(others(group, dtype, DTYPE.get(group[0].path.name, USUAL)))
    for group in grouped(item for item in found if item.path.name in TRACED):
        wait(others(group, name, "numba_thomas"))
    for group in grouped(found, subject_of):
        subject = subject_of(group[0])
        if written_in_jax(subject) or (subject.compiled and subject.library != "numpy" and not subject.pretended):
            wait(one_of(group))
    return waiting


def are_named(config: pytest.Config) -> bool:
    """Whether somebody asks for these tests and no others."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)
