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
- of a test in the files of `TRACED`, each case of which PyTorch or XLA traces anew: those of one compiled backend.

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

TIME = "TRIDIAG_TEST_SECONDS"  # in the environment
FIRST = 12  # cases of a test
USUAL = "float64"  # kernels of every dtype are compiled anew: files that need the same kernels share a dtype
DTYPE = {
    "test_matrix_recurrence.py": "complex128",
}
ONE_DTYPE = (
    "test_conventions.py", "test_gradients_torch.py", "test_isolation.py", "test_judging.py", "test_many_cores.py",
    "test_partition.py", "test_parts.py", "test_survival.py",
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
# Tests, or cases of them, that take many seconds or compile a kernel of their own, and look once more at what others
# look at. A name that ends with "-" is that of all cases that begin so.
LONG = {
    "test_selective_scan.py": tuple(  # an interpreter takes seconds for the steps of a chunk
        f"{test}[triton_scan-"
        for test in (
            "test_a_sequence_that_is_not_finite_reaches_no_other", "test_any_memory_layout", "test_broadcasting",
            "test_finite_differences_under_torch", "test_halves_are_computed_in_single",
            "test_some_arguments_alone_have_gradients", "test_the_last_states_continue_a_sequence",
            "test_transforms_of_torch", "test_what_is_not_read_has_no_gradient",
            "test_what_would_multiply_nothing_is_not_read",
        )
    ),
    "test_accuracy.py": (
        "test_backends_keep_their_promises[jax_scan-jax-complex128]",
        "test_backends_keep_their_promises[jax_scan-jax-float32]",
        "test_backends_keep_their_promises[jax_scan-jax-float64]",
    ),
    "test_accuracy_search.py": (
        "test_no_sequence_is_above_the_promise", "test_no_system_is_above_the_promise",
        "test_unknowns_that_vanish_in_a_chunk",
    ),
    "test_adjoint.py": ("test_every_dtype[(3, 7, 5)-1-complex128]", "test_every_dtype[(3, 7, 5)-1-float32]"),
    "test_alignment.py": (
        "test_exponents_of_runs_and_of_cells", "test_forward_mode_second_order_and_vmap",
        "test_long_sequences_leave_no_range", "test_other_dtypes",
        "test_what_is_wrong_is_said[ValueError-positive; found 0.0 .* in float32-given11-numpy]",
    ),
    "test_benchmarks.py": ("test_the_command_prints_and_writes_figures",),
    "test_blocks.py": (
        "test_values[numba_thomas-jax-shape2-2]", "test_values[numba_thomas-jax-shape3-4]",
        "test_values[numba_thomas-jax-shape4-7]", "test_values[numba_thomas-numpy-shape2-2]",
        "test_values[numba_thomas-numpy-shape3-4]", "test_values[numba_thomas-numpy-shape4-7]",
        "test_values[numba_thomas-torch-shape2-2]", "test_values[numba_thomas-torch-shape3-4]",
        "test_values[numba_thomas-torch-shape4-7]",
    ),
    "test_command_line.py": (
        "test_a_library_that_cannot_run_a_problem_is_refused_and_the_others_run",
        "test_every_gradient_has_a_judge[kalman.log_likelihood-jax]", "test_every_suite_rehearses",
        "test_gradients_are_compared_in_libraries_that_have_them", "test_pictures_of_a_problem",
    ),
    "test_condition.py": ("test_random_matrices[complex128-numpy]", "test_shapes_and_dtypes[numpy]"),
    "test_conventions.py": ("test_a_graph_of_torch_compile_holds_it",),
    "test_examples.py": (
        "test_an_ocean_conserves_and_its_backends_agree",
        "test_globins_at_a_low_temperature_have_the_score_of_biopython", "test_one_day_of_mixing_is_the_dense_solve",
    ),
    "test_factor.py": (
        "test_dtypes[numba_thomas-numpy-complex128]", "test_dtypes[numba_thomas-numpy-float32]",
        "test_dtypes[numba_thomas-torch-complex128]", "test_dtypes[numba_thomas-torch-float32]",
        "test_halves[numba_thomas-numpy]", "test_halves[numba_thomas-torch]",
        "test_right_sides_of_other_dtypes[numba_thomas-numpy]",
        "test_right_sides_of_other_dtypes[numba_thomas-torch]",
    ),
    "test_failures.py": (
        "test_a_heap_that_is_checked", "test_every_verb_short_of_address_space", "test_one_trouble_of_each_kind",
        "test_the_interpreter_ends_while_threads_are_in_kernels",
    ),
    "test_fast_path.py": (
        "test_the_short_way_is_as_good_as_the_long_one[alignments, single and hot]",
        "test_the_short_way_is_as_good_as_the_long_one[alignments, single]",
        "test_the_short_way_is_as_good_as_the_long_one[complex, real coefficients]",
        "test_the_short_way_is_as_good_as_the_long_one[factors, of another dtype]",
        "test_the_short_way_is_as_good_as_the_long_one[factors, single]",
    ),
    "test_fast_path_torch.py": (
        *(
            f"test_the_short_way_is_as_good_as_the_long_one[{case}"
            for case in (
                "factored, a named backend", "factored, conjugated", "factored, integers alone", "factored, options",
                "half precision", "solve, a complex number-no out",
            )
        ),
    ),
    "test_ffi.py": ("test_memory_that_runs_out_inside_jit[False]", "test_memory_that_runs_out_inside_jit[True]"),
    "test_filter_table.py": (
        "test_results_are_those_of_the_backend[f4-batch0-", "test_results_are_those_of_the_backend[f4-batch1-",
        "test_results_are_those_of_the_backend[f4-batch2-smoother]",
        "test_results_are_those_of_the_backend[f4-batch3-",
    ),
    "test_foreign.py": ("test_distributed_tensors", "test_subclasses_of_tensors_with_memory"),
    "test_gradients_jax.py": (
        "test_finite_differences_forward_and_reverse[jax_scan-jax-2]", "test_gradients_of_the_weights_of_a_gradient",
        "test_hessian", "test_jacobians_forward_and_reverse_agree", "test_nan_in_masked_rows_reaches_nothing",
        "test_second_order_in_every_mix_of_modes", "test_shared_arguments_collect_their_gradients",
    ),
    "test_gradients_torch.py": ("test_finite_differences_to_second_order_forward_and_reverse",),
    "test_guard.py": (
        "test_a_planted_loss_is_found", "test_a_rehearsal_finds_what_was_written", "test_another_machine_is_told",
        "test_lines_that_only_one_side_knows_are_told",
    ),
    "test_guarded.py": ("test_each_mistake_is_seen", "test_no_case_fails"),
    "test_interrupts.py": ("test_ctrl_c_ends_a_call", "test_handlers_that_do_not_raise"),
    "test_jax_program.py": ("test_an_exported_program_takes_any_number_of_systems[auto]",),
    "test_judging.py": ("test_cases_that_were_judged_wrongly",),
    "test_kalman.py": (
        "test_batches_of_moments[numba_scan-numpy-0.3]", "test_compiled_gradients_are_those_of_a_scan",
        "test_compiled_gradients_inside_shard_map", "test_gradients_of_one_series_after_another",
        "test_moments_of_one_series[numba_scan-numpy-changing]",
        "test_moments_of_one_series[numba_scan-numpy-more observed than states]",
        "test_moments_of_one_series[numba_scan-numpy-two observed]", "test_parallel_is_sequential",
        "test_other_precisions[numba_scan-", "test_second_derivatives",
        "test_states_of_more_series_than_lanes[numba_scan-numpy]",
        "test_states_of_the_parallel_scan", "test_statsmodels",
    ),
    "test_kalman_diffuse.py": (
        "test_batches_of_intercepts[jax_scan-jax]", "test_gradients_in_jax",
        "test_intercepts[jax_scan-jax", "test_intercepts[numba_scan-jax-", "test_results_are_limits[jax_scan-jax",
        "test_series_with_other_unknowns_and_gaps[jax_scan-jax]",
        "test_series_with_other_unknowns_and_gaps[numba_scan-jax]", "test_what_is_unknown_may_be_said[jax_scan-jax]",
        "test_what_is_unknown_may_be_said[numba_scan-jax]",
    ),
    "test_kalman_unknown.py": (
        "test_exact_observations_that_contradict_the_model[numba_scan-numpy]",
        "test_what_is_hardly_seen_at_first[jax_scan-jax]",
    ),
    "test_kalman_accuracy.py": (
        "test_float32[numba_scan-jax]", "test_float32[numba_scan-numpy]",
        "test_gradients_keep_digits[numba_scan-jax-3]", "test_no_digits_are_lost[numba_scan-numpy-delayed in a ring]",
        "test_no_digits_are_lost[numba_scan-numpy-delayed]",
        "test_no_digits_are_lost[numba_scan-numpy-diffuse, constant, two observed]",
        "test_no_digits_are_lost[numba_scan-numpy-diffuse, constant]",
        "test_no_digits_are_lost[numba_scan-numpy-exact]", "test_no_digits_are_lost[numba_scan-numpy-more diffuse]",
        "test_no_digits_are_lost[numba_scan-numpy-units]",
    ),
    "test_kalman_disturbances.py": (
        "test_disturbances[jax_scan-jax-one state]", "test_disturbances[numba_scan-numpy-one state]",
    ),
    "test_kalman_verbs.py": (
        "test_a_stream_is_the_filter[jax_scan-jax]", "test_covariances_with_the_step_before[jax_scan-jax-",
        "test_forecasts[jax_scan-jax-", "test_log_likelihoods_of_steps[jax_scan-jax",
        "test_samples_have_the_moments_of_the_model[jax_scan-jax]",
        "test_samples_of_states_have_the_moments_of_the_smoother[jax_scan-jax-",
    ),
    "test_kernel_cache.py": (
        "test_a_fork_while_another_thread_compiles", "test_a_full_disk", "test_another_cpu_gets_code_of_its_own",
        "test_code_that_calls_a_kernel_which_is_not_there", "test_processes_that_fill_a_folder_together",
    ),
    "test_long.py": ("test_they_suffice_where_systems_fill_no_vector[float32",),
    "test_logarithms.py": (
        "test_chunks_of_one_row[float32]", "test_finite_differences_under_torch",
        "test_halves_compute_in_single_precision[numba_scan-jax]",
        "test_halves_compute_in_single_precision[numba_scan-numpy]",
        "test_halves_compute_in_single_precision[numba_scan-torch]",
        "test_integers_promote_as_in_their_library[numba_scan-torch]", "test_one_step_in_jax_is_its_argument",
        "test_out_takes_the_result[numba_scan-numpy-float16]", "test_out_takes_the_result[numba_scan-torch-float16]",
    ),
    "test_many_cores.py": ("test_many_cores",),
    "test_matmul_slogdet.py": (
        "test_a_singular_matrix_has_sign_0_and_logarithm_minus_inf[numba_thomas-numpy]",
        "test_complex_pivots_at_the_ends_of_the_range",
        "test_determinants_in_other_dtypes[numba_thomas-numpy-complex128]",
        "test_determinants_in_other_dtypes[numba_thomas-numpy-float32]",
    ),
    "test_matrix_recurrence.py": (
        "test_finite_differences_under_torch", "test_sequences_abreast_and_left_over[numba_scan-numpy-5-",
        "test_sequences_abreast_and_left_over[numba_scan-numpy-6-",
        "test_sequences_abreast_and_left_over[numba_scan-numpy-7-",
        "test_values[numba_scan-jax-shape3-4-",
        "test_values[numba_scan-jax-shape4-5-", "test_values[numba_scan-numpy-shape3-4-",
        "test_values[numba_scan-numpy-shape4-5-", "test_values[numba_scan-torch-shape3-4-",
        "test_values[numba_scan-torch-shape4-5-",
    ),
    "test_new_backend.py": ("test_it_passes_the_tests_of_a_backend",),
    "test_partition.py": (
        "test_a_singular_matrix_in_which_no_coupling_decays", "test_what_is_not_finite_is_not_singular[0-nan]",
        "test_what_is_not_finite_is_not_singular[1-inf]", "test_what_is_not_finite_is_not_singular[2-",
        "test_what_is_not_finite_is_not_singular[3-",
    ),
    "test_plan.py": ("test_the_short_way_of_recurrences_is_as_good[numbers of NumPy-Fortran]",),
    "test_records.py": (
        "test_a_zone_that_was_written_ends_the_process", "test_arrays_that_are_filled_to_their_ends_are_fine",
    ),
    "test_recurrence_gradients.py": (
        "test_finite_differences_of_order_3_under_jax", "test_finite_differences_of_order_3_under_torch",
        "test_second_differences_of_order_3_under_jax", "test_the_gradients_of_what_is_never_read_are_zero_under_jax",
        "test_the_gradients_of_what_is_never_read_are_zero_under_torch[numba_scan-torch]",
    ),
    "test_recurrences.py": (
        "test_a_long_sequence_that_cannot_be_cut", "test_constant_coefficients_are_a_filter_of_scipy",
        "test_higher_orders[numba_scan-numpy-shape0--1-5-False]",
        "test_higher_orders[numba_scan-numpy-shape0--1-5-True]",
        "test_higher_orders[numba_scan-numpy-shape1-1-5-False]",
        "test_higher_orders[numba_scan-numpy-shape1-1-5-True]", "test_no_compiled_loop_reads_them[5-",
        "test_the_final_values_continue_the_sequence[numba_scan-jax-3-",
        "test_the_final_values_continue_the_sequence[numba_scan-numpy-3-",
        "test_the_final_values_continue_the_sequence[numba_scan-torch-3-",
        "test_the_first_coefficients_are_not_read_without_init[numba_scan-",
        "test_they_are_not_read_whatever_the_steps_left_over_from_vectors[numba_scan-",
    ),
    "test_scan.py": (
        "test_gradients[0]", "test_gradients[1]", "test_second_derivatives", "test_vmap[0]", "test_vmap[2]",
    ),
    "test_selection.py": (
        "test_a_backend_that_fails_leaves_the_others_to_be_measured", "test_a_run_that_was_cut_off_goes_on",
        "test_killed_at_any_moment_it_leaves_a_readable_file_or_none", "test_the_command_tunes",
        "test_what_is_measured_is_used_from_then_on",
    ),
    "test_singular.py": (
        "test_a_singular_complex_system[numba_thomas-jax-True-complex128]",
        "test_a_singular_complex_system[numba_thomas-numpy-True-complex128]",
        "test_a_singular_complex_system[numba_thomas-torch-True-complex128]",
        "test_long_periodic_systems_are_singular_where_short_ones_are",
        "test_what_is_nan_for_a_zero_pivot_raises[numba_partition",
    ),
    "test_solve.py": (
        "test_integers_promote_as_in_their_library[numba_thomas-torch]",
        "test_memory_layouts_of_torch[numba_partition-torch]",
        "test_overwrite_d_returns_d[numba_thomas-numpy-True-float16]",
        "test_overwrite_d_returns_d[numba_thomas-torch-True-float16]",
        "test_rows_that_share_sets_of_the_cache[complex128-512-True]",
        "test_rows_that_share_sets_of_the_cache[complex128-1536-True]",
        "test_rows_that_share_sets_of_the_cache[float32-512-True]",
        "test_rows_that_share_sets_of_the_cache[float32-1536-True]",
    ),
    "test_special_values.py": ("test_logarithms[numba_scan-numpy]", "test_logarithms[numba_scan-torch]"),
    "test_survival.py": (
        "test_32_threads_at_once", "test_32_threads_at_once_inside_jit", "test_a_forked_child_after_jit",
        "test_a_pool_of_processes", "test_a_worker_of_an_executor", "test_memory_that_runs_out",
        "test_more_solves_in_one_program_than_xla_has_threads",
        "test_more_threads_than_helpers_are_kept_for[numba_partition]", "test_the_first_calls_may_be_concurrent",
    ),
    "test_torch_compile.py": (
        "test_alignments_break_the_graph", "test_an_exported_model_is_one_for_all_batches_and_can_be_trained",
        "test_an_exported_recurrence_takes_no_sequences", "test_block_tridiagonal_systems",
        "test_factorizations_break_the_graph", "test_gradients_of_some_arguments_only", "test_log_determinants",
        "test_masks_and_shared_matrices", "test_matrix_recurrences", "test_nothing_to_solve_and_single_rows",
        "test_operators_keep_the_promises_of_operators", "test_products", "test_python_scalars_and_dtypes",
        "test_recurrences_of_logarithms", "test_shapes_that_change_are_noticed_by_themselves",
        "test_transformed_calls", "test_where_a_solution_goes",
    ),
    "test_totals.py": (
        "test_linear_totals[float32-False-True]", "test_linear_totals[float32-True-True]",
        "test_totals_of_logarithms[float32-",
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


def others(items: list[Any], value: Any, wanted: str) -> list[Any]:
    """All with another value than the wanted one; or if none has that, than the first."""
    values = [value(item) for item in items]
    chosen = wanted if wanted in values else values[0]
    return [item for item, found in zip(items, values, strict=True) if found != chosen]


def takes_long(item: Any) -> bool:
    """Whether `LONG` names a case, its test, or how it begins."""
    named = LONG.get(item.path.name, ())
    beginnings = tuple(name for name in named if name.endswith("-"))
    return item.name in named or item.originalname in named or item.name.startswith(beginnings)


def later(items: list[Any]) -> list[Any]:
    """The items that need not run at once."""
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
    for group in grouped(item for item in pure if item not in set(each)):
        wait(others(group, name, IN_JAX.get(group[0].path.name, ("", ()))[0]))
    real = [item for item in found if not subject_of(item).pretended and not written_in_jax(subject_of(item))]
    for group in grouped((item for item in real if dtype_of(item)), subject_of):
        wait(others(group, dtype_of, DTYPE.get(group[0].path.name, USUAL)))
    wait(item for item in real if name(item) == "numba_partition" and in_other_precision(item))
    for group in grouped(x for x in found if x.path.name in TRACED and not written_in_jax(subject_of(x))):
        wait(others(group, name, "numba_thomas"))
    for group in grouped(found, subject_of):
        subject = subject_of(group[0])
        if written_in_jax(subject) or (subject.compiled and subject.library != "numpy" and not subject.pretended):
            wait(one_of(group))
    return waiting


def first_of_every_test(items: list[Any], processes: int) -> list[Any]:
    """The same in the order in which they are run for as long as there is time, by each of some processes.

    Of a test some cases, chosen by their names, come before those of others. Modules stay together in either part, as
    what they compile is kept for a module, and every process begins with a part of its own.
    """
    ranks: dict[Any, int] = {}
    for group in grouped(items):
        group.sort(key=lambda item: zlib.crc32(item.name.encode()))
        ranks |= {item: rank for rank, item in enumerate(group)}
    modules = list(dict.fromkeys(item.path for item in items))
    place = {path: k % processes for k, path in enumerate(modules)}
    return sorted(items, key=lambda item: (place[item.path], ranks[item] >= FIRST))


def are_named(config: pytest.Config) -> bool:
    """Whether somebody asks for these tests and no others."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)
