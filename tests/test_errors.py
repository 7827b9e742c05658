"""That bad input gets an exception that says what was given, what was wanted and what to do, before any work."""

import array
import functools
import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import SUBJECTS, Subject

import tridiag
from tridiag import kalman, verbs
from tridiag.backends import BACKENDS

ONES = np.ones((4, 6))
MATRIX = (ONES, 4 * ONES, ONES)
VERBS = {
    "solve": lambda a, b, c, **options: tridiag.solve(a, b, c, ONES, **options),
    "factor": tridiag.factor,
    "slogdet": tridiag.slogdet,
    "matmul": lambda a, b, c, **options: tridiag.matmul(a, b, c, ONES, **options),
}


def solve(a: Any = 1.0, b: Any = 4.0, c: Any = 1.0, d: Any = ONES, **options: Any) -> Any:
    return tridiag.solve(a, b, c, d, **options)


def refused(kind: type[Exception], text: str, *args: Any, **options: Any) -> None:
    with pytest.raises(kind, match=text):
        solve(*args, **options)


# --------------------------------------------------------------------------------------------------------- shapes


def test_shapes_that_do_not_broadcast() -> None:
    text = r"do not broadcast: a \(4, 6\), b \(3, 6\), c \(\), d \(4, 6\); b has length 3 where another argument has 4"
    refused(ValueError, text, ONES, 4 * ONES[:3])


def test_a_mask_that_does_not_broadcast() -> None:
    refused(ValueError, r"where \(5,\).*where has length 5 where another argument has 6", where=np.ones(5, bool))


@pytest.mark.parametrize(
    ("name", "args"), [("a", (ONES[:, 1:],)), ("c", (1.0, 4.0, ONES[:, 1:])), ("a", (ONES[0, 1:],))]
)
def test_off_diagonals_of_length_n_minus_1(name: str, args: Any) -> None:
    place = {"a": "in front", "c": "at the end"}[name]
    refused(
        ValueError,
        rf"{name} has length 5 .* has 6 rows.*full length is wanted; pad {name} .* {place}",
        *args,
    )


def test_off_diagonals_of_length_1_for_2_rows() -> None:
    """LAPACK's length, and a constant: it is a constant."""
    np.testing.assert_allclose(solve(np.ones(1), 4.0, np.ones(1), np.array([9.0, 6.0])), [2, 1])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_out_of_range(verb: str, axis: int) -> None:
    with pytest.raises(ValueError, match=rf"axis {axis} is out of range: .* 2 dimension.* from -2 to 1"):
        VERBS[verb](*MATRIX, axis=axis)


@pytest.mark.parametrize("axis", [1.0, (0,), None, "0", True, np.True_])
def test_an_axis_that_is_no_integer(axis: Any) -> None:
    refused(TypeError, "axis is .*; wanted one integer", axis=axis)


def test_an_axis_that_is_an_integer_of_numpy() -> None:
    assert solve(axis=np.int64(0)).shape == ONES.shape


@pytest.mark.parametrize("verb", VERBS)
def test_scalars_only(verb: str) -> None:
    with pytest.raises(
        ValueError, match="scalars, which do not tell how many rows there are; at least one must be an array"
    ):
        getattr(tridiag, verb)(*([1.0] * (3 if verb in ("factor", "slogdet") else 4)))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("n", [1, 2])
def test_periodic_with_few_rows(verb: str, n: int) -> None:
    given = [ONES[:, :n]] * (3 if verb in ("factor", "slogdet") else 4)
    with pytest.raises(ValueError, match=f"periodic=True needs at least 3 rows, and the system has {n}"):
        getattr(tridiag, verb)(*given, periodic=True)


# --------------------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", ["object", "str", "bool", "datetime64[s]", "longdouble"])
@pytest.mark.parametrize("k", range(4))
def test_dtypes_that_are_no_numbers(k: int, dtype: str) -> None:
    given = [1.0, 4.0, 1.0, ONES]
    given[k] = np.ones(6).astype(dtype)
    refused(TypeError, rf"{'abcd'[k]} has dtype .*; wanted a numeric dtype .* convert {'abcd'[k]} first", *given)


def test_a_boolean_scalar() -> None:
    refused(TypeError, "a has dtype bool", True)


def test_booleans_of_torch_and_jax() -> None:
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    refused(TypeError, "b has dtype bool", 1.0, torch.ones(6, dtype=torch.bool), 1.0, torch.ones(6))
    refused(TypeError, "b has dtype bool", 1.0, numpy.ones(6, bool), 1.0, numpy.ones(6))


def test_bfloat16_of_numpy_arrays() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    few, one = ONES.astype(bfloat16), np.eye(1, dtype=bfloat16)
    told = r"{} has dtype bfloat16, which NumPy .*; pass {}\.astype\(numpy\.float32\)"
    calls: dict[str, Callable[[], Any]] = {
        "b": lambda: tridiag.solve(1.0, few, 1.0, ONES),
        "x": lambda: tridiag.logcumsumexp(few),
        "a": lambda: tridiag.linear_recurrence(few, ONES),
        "C": lambda: tridiag.selective_scan(0.5, ONES, 1.0, few),
        "scores": lambda: tridiag.smith_waterman(few[:, None], gap=-1.0),
        "F": lambda: tridiag.kalman.filter(ONES[:, None], F=one, H=one, Q=one, R=one, m0=one[0], P0=one),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=told.format(name, name)):
            call()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_integers_that_torch_does_not_promote(dtype: str) -> None:
    """Once these were told that integers are converted."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, dtype):
        pytest.skip("this PyTorch has no such dtype")
    x = torch.ones(6, dtype=getattr(torch, dtype))
    told = rf"has dtype {dtype}, which PyTorch promotes with no other; .*\.to\(torch\.int64\)"
    refused(TypeError, f"b {told}", 1.0, x, 1.0, torch.ones(6))
    with pytest.raises(TypeError, match=f"x {told}"):
        tridiag.linear_recurrence(1, x)
    assert tridiag.linear_recurrence(1, x.to(torch.int64)).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_that_torch_does_not_promote(dtype: str) -> None:
    """PyTorch's own error names no argument."""
    torch = pytest.importorskip("torch")
    x = torch.ones(6).to(getattr(torch, dtype))
    told = f"has dtype {dtype}; wanted a numeric dtype that computes in one of float32"
    refused(TypeError, f"d {told}", 1.0, torch.ones(6), 1.0, x)
    with pytest.raises(TypeError, match=f"x {told}"):
        tridiag.logcumsumexp(x)


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint8"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_mask_that_is_not_boolean(verb: str, dtype: str) -> None:
    with pytest.raises(TypeError, match=f"where has dtype {dtype}; wanted booleans.*pass where != 0"):
        VERBS[verb](*MATRIX, where=np.ones(6, dtype))


@pytest.mark.parametrize("empty", [[], (), [[]], np.empty(0)])
@pytest.mark.parametrize("verb", VERBS)
def test_a_mask_without_entries(verb: str, empty: Any) -> None:
    """An empty list has no booleans: its dtype is no mistake of the caller."""
    with pytest.raises(TypeError, match=r"where has shape \(.*0.*\), without an entry; wanted booleans.*or None"):
        VERBS[verb](*MATRIX, where=empty)


# ------------------------------------------------------------------------------------------------- kinds of arrays


def test_sparse_matrices() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    for made in (sparse.eye_array(6).tocsr(), sparse.csc_matrix(np.eye(6)), sparse.dia_array(np.eye(6))):
        refused(TypeError, r"b is a sparse matrix; pass its three diagonals.*a\[1:\] = A.diagonal\(-1\)", 1.0, made)


def test_shapes_of_jax() -> None:
    jax = pytest.importorskip("jax")
    given = jax.ShapeDtypeStruct((6,), "float32")
    refused(TypeError, "d is a jax.ShapeDtypeStruct, which has no numbers; pass it through jax.eval_shape", d=given)
    assert jax.eval_shape(tridiag.solve, *[given] * 4).shape == (6,)


def test_masked_arrays() -> None:
    masked = np.ma.masked_array(ONES, ONES > 2)
    refused(TypeError, "d is a masked array; pass d.data, and the rows to keep as where=~d.mask", d=masked)
    refused(TypeError, "where is a masked array", where=masked > 0)


@pytest.mark.parametrize("verb", VERBS)
def test_libraries_mixed(verb: str) -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for b in (torch.ones(4, 6), jax.numpy.ones((4, 6))):
        for a in (torch.ones(4, 6), ONES):
            kinds = {type(x).__module__.partition(".")[0] for x in (a, b)}
            if "torch" in kinds and len(kinds) == 2:
                with pytest.raises(
                    TypeError, match=r"belong to different libraries \(.*torch.*\); convert them to one"
                ):
                    VERBS[verb](a, b, 1.0)


def test_how_to_convert_is_said() -> None:
    torch = pytest.importorskip("torch")
    refused(
        TypeError, r"b: numpy, d: torch.*torch\.from_numpy\(x\) shares the memory", 1.0, 4 * ONES, 1.0, torch.ones(6)
    )
    x = solve(1.0, torch.from_numpy(4 * ONES), np.float64(1.0), torch.ones(6))
    assert isinstance(x, torch.Tensor) and x.dtype == torch.float64


def test_a_mask_of_another_library() -> None:
    torch = pytest.importorskip("torch")
    refused(TypeError, "different libraries .*where: numpy", 1.0, 4.0, 1.0, torch.ones(6), where=np.ones(6, bool))


def test_numpy_arrays_beside_jax_arrays_are_taken_as_jax_takes_them() -> None:
    numpy = pytest.importorskip("jax.numpy")
    x = solve(np.ones(6), 4.0, np.float64(1), numpy.ones((4, 6), "float32"), where=np.ones(6, bool))
    assert isinstance(x, numpy.ndarray) and x.dtype == np.float64


def test_they_are_single_where_x64_is_off() -> None:
    pytest.importorskip("jax")
    program = """
import numpy as np, jax.numpy as jnp, tridiag
x = tridiag.solve(np.ones(6), 4.0, np.ones(6), jnp.ones(6))
y = tridiag.solve(1, jnp.full(6, 4), 1, jnp.arange(6))
print(x.dtype, y.dtype, bool(abs(x[0] - 0.2113) < 1e-4))
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["float32", "float32", "True"], run.stderr


# ------------------------------------------------------------------------------------------------------- backends


@pytest.mark.parametrize("verb", ["solve", "factor", "slogdet"])
@pytest.mark.parametrize("name", ["nonsense", "", "Numba", "numba_"])
def test_an_unknown_backend_lists_those_that_can(verb: str, name: str) -> None:
    """And no others, which would be refused next."""
    with pytest.raises(tridiag.BackendError, match=f"no backend {name!r}.* This call takes: 'auto'") as caught:
        VERBS[verb](*MATRIX, backend=name)
    told = str(caught.value)
    for known in BACKENDS.values():
        able = verb in known.verbs and "numpy" in known.arrays and known.unusable() is None
        assert (f" {known.name!r}," in told.partition("takes")[2]) == able, known.name
    assert " or a library: 'numba', " in told and "tridiag.backends()" in told
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("numba_tomas", "numba_thomas"), ("numba-thomas", "numba_thomas"), ("NUMBA_THOMAS", "numba_thomas"),
        ("thomas", "numba_thomas"), ("pytorch", "torch"), ("nump", "numpy"), ("scipy_gtsw", "scipy_gtsv"),
    ],
)  # fmt: skip
def test_a_backend_misspelt(name: str, meant: str) -> None:
    refused(tridiag.BackendError, f"no backend '{name}'; did you mean '{meant}'", backend=name)


@pytest.mark.parametrize("name", [None, 3, ["numba"]])
def test_a_backend_that_is_no_name(name: Any) -> None:
    refused(TypeError, "backend is .*; wanted a name. This call takes: 'auto', 'numba_thomas'", backend=name)


@pytest.mark.parametrize("pivoting", ["yes", None, 1, "Auto", "True"])
def test_a_promise_that_is_none(pivoting: Any) -> None:
    refused(ValueError, "pivoting is .*; wanted False, True or 'auto'", pivoting=pivoting)


PROMISES = [(s, p) for s in SUBJECTS if s.can() for p in (True, "auto") if p not in s.promises]


@pytest.mark.each
@pytest.mark.parametrize(("subject", "pivoting"), PROMISES, ids=str)
def test_a_promise_that_a_backend_cannot_keep(subject: Subject, pivoting: Any) -> None:
    """On a device that is pretended, no other backend is there."""
    if reason := subject.cannot_run_here():
        pytest.skip(reason)
    text = rf"'{subject.name}' cannot solve.*cannot keep the promise pivoting={pivoting!r}.*Backends that can: \w+"
    with pytest.raises(tridiag.BackendError, match=text) as caught:
        subject.solve(*MATRIX, ONES, pivoting=pivoting)
    able = str(caught.value).partition("Backends that can: ")[2].split(", ")
    for other in SUBJECTS:
        beside = (other.library, other.device) == (subject.library, subject.device) and not subject.pretended
        could = beside and pivoting in other.promises and not other.cannot_run_here()
        assert not could or other.name in able


def test_a_backend_for_other_arrays_other_verbs_and_no_corners() -> None:
    refused(
        tridiag.BackendError,
        "takes torch arrays, not numpy.*that can: numba_thomas, numba_partition, numpy",
        backend="torch_thomas",
    )
    refused(tridiag.BackendError, "has no elimination for the corners", backend="scipy", periodic=True)
    with pytest.raises(tridiag.BackendError, match="scipy_gtsv does not have the verb factor; it has solve"):
        tridiag.factor(*MATRIX, backend="scipy_gtsv")


# ------------------------------------------------------------------------------------------------ out and overwrite_d


def test_out_of_the_wrong_shape_or_dtype() -> None:
    refused(ValueError, r"out has shape \(6,\); the result has shape \(4, 6\)", out=np.zeros(6))
    refused(TypeError, "out has dtype float32; the result has dtype float64", out=np.zeros((4, 6), np.float32))
    refused(TypeError, "out is a list; wanted an array", out=[[0.0] * 6] * 4)


def test_out_that_is_read_only() -> None:
    refused(ValueError, "out is read-only", out=np.broadcast_to(0.0, (4, 6)))


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "where"])
def test_out_that_overlaps_an_input(name: str) -> None:
    memory = np.full(5 * 6, 4.0)
    out, given = memory[:24].reshape(4, 6), {"d": ONES, name: memory[6:].reshape(4, 6)}
    if name == "where":
        given[name] = memory.view(np.uint8)[:24].reshape(4, 6).view(bool)
    refused(ValueError, f"out shares memory with {name}, .*overwrite_d", **given, out=out)


LENT = {
    "memoryview": memoryview,
    "buffer": lambda x: array.array("d", x),
    "Series": lambda x: pytest.importorskip("pandas").Series(x, copy=False),
}


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
@pytest.mark.parametrize("kind", LENT)
def test_out_that_overlaps_the_memory_that_an_input_lends(kind: str, name: str) -> None:
    """What is no array may lend its memory; beside the array that is written it may lie."""
    memory = np.full(6, 0.5)
    lent = LENT[kind](memory)
    out = np.frombuffer(lent) if kind == "buffer" else memory
    given = {"d": ONES[0], name: lent}
    refused(ValueError, f"out shares memory with {name}, .*overwrite_d", **given, out=out)
    np.testing.assert_array_equal(solve(**given, out=np.zeros(6)), solve(**{"d": ONES[0], name: np.full(6, 0.5)}))


def test_a_right_side_whose_memory_is_lent_is_not_overwritten() -> None:
    d = np.full(6, 4.0)
    x = solve(b=memoryview(d), d=d, overwrite_d=True)
    assert (d == 4).all()
    np.testing.assert_array_equal(x, solve(b=np.full(6, 4.0), d=d))


def test_out_that_interleaves_with_an_input_is_fine() -> None:
    memory = np.ones((4, 12))
    x = solve(d=memory[:, ::2], out=memory[:, 1::2])
    np.testing.assert_array_equal(x, solve())
    assert (memory[:, ::2] == 1).all()


def test_out_of_torch() -> None:
    torch = pytest.importorskip("torch")
    d = torch.ones(4, 6).double()
    refused(ValueError, "out shares memory with d, .*overwrite_d=True", d=d, out=d)
    refused(ValueError, "out requires a gradient .*out.detach", d=d, out=torch.zeros_like(d, requires_grad=True))
    refused(TypeError, "different libraries", d=d, out=np.zeros((4, 6)))
    refused(ValueError, "out .*memory", d=d, out=torch.zeros(6).double().expand(4, 6))


def test_out_under_jax_names_what_to_do() -> None:
    numpy = pytest.importorskip("jax.numpy")
    d = numpy.ones((4, 6))
    refused(TypeError, "JAX arrays are immutable.*overwrite_d=True.*donate_argnums", d=d, out=d)
    refused(TypeError, "JAX arrays are immutable", d=d, out=np.zeros((4, 6)))


@pytest.mark.parametrize("argument", ["out", "d"])
def test_nothing_is_written_where_something_is_wrong(argument: str) -> None:
    given = np.full((4, 6), 7.0)
    options = {"out": given} if argument == "out" else {"d": given, "overwrite_d": True}
    refused(ValueError, "axis", axis=5, **options)
    refused(ValueError, "backend", backend="nonsense", **options)
    assert (given == 7).all()


# -------------------------------------------------------------------------------------------------------- explain


def test_explain_of_what_it_does_not_know() -> None:
    for name, meant in (("slove", "solve"), ("Filter", "kalman.filter"), ("kalman.forcast", "kalman.forecast")):
        with pytest.raises(ValueError, match=f"no verb '{name}'; did you mean '{meant}'. The verbs are solve, factor"):
            tridiag.explain(name, *MATRIX, ONES)
    with pytest.raises(TypeError, match="matmul has no argument backend"):
        tridiag.explain("matmul", *MATRIX, ONES, backend="numba")
    with pytest.raises(TypeError, match="solve also needs c, d"):
        tridiag.explain("solve", 1.0, ONES)
    with pytest.raises(ValueError, match="axis 5 is out of range"):
        tridiag.explain("solve", *MATRIX, ONES, axis=5)


def test_explain_takes_every_public_verb() -> None:
    """Functions of the package and of `kalman` that are called with arrays, and no others."""
    none = "backends", "explain", "tune"
    found = [(name, getattr(tridiag, name)) for name in tridiag.__all__ if name not in none]
    found += [(f"kalman.{name}", getattr(kalman, name)) for name in kalman.__all__]
    assert {name for name, verb in found if inspect.isfunction(inspect.unwrap(verb))} == verbs.VERBS.keys()
    for name, known in verbs.VERBS.items():
        taken = inspect.signature(dict(found)[name]).parameters
        assert known.has_backend == ("backend" in taken or ("model" in taken and name != "kalman.simulate")), name
        assert taken.keys() & {"model"} or {*known.needed, *known.options, *known.more} <= taken.keys(), name


@pytest.mark.parametrize("options", [{"axes": 0}, {"nonsense": 1}])
def test_explain_refuses_what_the_call_refuses(options: Any) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        tridiag.explain("solve", *MATRIX, ONES, **options)


def test_out_that_overlaps_itself() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(12), (4, 6), (8, 8))
    refused(ValueError, "entries of out share memory with each other", out=out)


@pytest.mark.parametrize("flag", ["periodic", "transpose", "overwrite_d", "check"])
def test_flags_that_are_no_booleans(flag: str) -> None:
    refused(TypeError, f"{flag} is .*wanted True(, False or None| or False)", **{flag: "yes"})


@pytest.mark.parametrize("shape", [(5, 1), (3, 5, 1), (5, 1, 1)])
@pytest.mark.parametrize("verb", ["solve", "matmul", "factor"])
def test_columns_beside_bands_are_no_constant_rows(verb: str, shape: tuple[int, ...]) -> None:
    """``d[:, None]``, as LAPACK has right sides, would be n systems of equal rows: a wrong answer without a word."""
    a, b, c, d = np.ones(5), np.full(5, 4.0), np.ones(5), np.ones(shape)
    axis = shape.index(5)
    with pytest.raises(ValueError, match=rf"axis={axis} if its columns are right sides.*tridiag\.conventions"):
        tridiag.factor(a, b, c).solve(d) if verb == "factor" else getattr(tridiag, verb)(a, b, c, d)
    if verb != "factor":
        function = getattr(tridiag, verb)
        assert function(a, b, c, d, axis=axis).shape == shape
        assert function(a, b, c, np.broadcast_to(d, (*shape[:-1], 5))).shape == (*shape[:-1], 5)


@pytest.mark.parametrize("verb", ["solve", "matmul", "factor"])
@pytest.mark.parametrize(("matrices", "columns"), [((5, 5), 1), ((1, 5), 1), ((4, 5), 1), ((4, 5), 3), ((2, 4, 5), 1)])
def test_columns_beside_a_matrix_for_each_batch_of_them(verb: str, matrices: tuple[int, ...], columns: int) -> None:
    """Of JAX and TensorFlow, (..., n, k): with as many systems as rows, and k = 1, they would be constant rows."""
    generator = np.random.default_rng(0)
    shape = (*matrices, columns) if matrices[0] > 1 else (3, 5, columns)
    a, b, c, d = 1.0, 4 + generator.random(matrices), np.ones(5), generator.random(shape)

    def call(b: Any, d: Any, axis: int = -1) -> Any:
        if verb == "factor":
            return tridiag.factor(a, b, c, axis=axis).solve(d)
        return getattr(tridiag, verb)(a, b, c, d, axis=axis)

    with pytest.raises(ValueError, match=r"axis=-2 with b\[\.\.\., None\] if the columns of .*tridiag\.conventions"):
        call(b, d)
    for k in range(columns):
        np.testing.assert_allclose(call(b[..., None], d, axis=-2)[..., k], call(b, d[..., k]), rtol=1e-14)
    if columns == 1 and matrices[-2] in (1, 5):
        assert call(b, np.broadcast_to(d, (*shape[:-1], 5))).shape == (*shape[:-1], 5)


@pytest.mark.parametrize("verb", ["linear_recurrence", "log_linear_recurrence"])
@pytest.mark.parametrize("channels", [1, 3])
def test_coefficients_that_all_channels_share_lack_their_axis(verb: str, channels: int) -> None:
    a, x = np.full((5, 5), -0.5), np.ones((5, 5, channels))
    name = "a" if verb == "linear_recurrence" else "log_a"
    with pytest.raises(ValueError, match=rf"axis=-2 with {name}\[\.\.\., None\] if the steps of x lie there"):
        getattr(tridiag, verb)(a, x)
    assert getattr(tridiag, verb)(a[..., None], x, axis=-2).shape == x.shape


def test_constant_rows_beside_matrices_that_are_no_columns() -> None:
    """Arrays of one rank say themselves which axis is which; and (3, 5, 1) fits (5, 5) in no other way."""
    b = np.full((5, 5), 4.0)
    assert tridiag.solve(1.0, b, 1.0, np.ones((5, 1))).shape == (5, 5)
    assert tridiag.solve(1.0, b, 1.0, np.ones((3, 5, 1))).shape == (3, 5, 5)
    assert tridiag.solve(1.0, b[:, None], 1.0, np.ones((5, 5, 1))).shape == (5, 5, 5)


@pytest.mark.parametrize("verb", ["linear_recurrence", "log_linear_recurrence"])
def test_one_step_beside_a_coefficient_a_channel_is_no_constant_row(verb: str) -> None:
    """A step of a stream, (batch, 1, channels): a of (channels,) lies along the steps, and there would be as many."""
    function, a, x = getattr(tridiag, verb), np.full(3, -0.5), np.ones((2, 1, 3))
    name = "a" if verb == "linear_recurrence" else "log_a"
    with pytest.raises(
        ValueError, match=rf"axis=2 if the steps are there, {name}\[None, None, :\] if it is one number"
    ):
        function(a, x, axis=1)
    assert function(a[None, None, :], x, axis=1).shape == function(a, x, axis=2).shape == x.shape
    assert function(a, np.broadcast_to(x, (2, 3, 3)), axis=1).shape == (2, 3, 3)
    assert function((a, a) if name == "a" else a, x, axis=2).shape == x.shape


OPTIONS: dict[str, Callable[[Any], Any]] = {
    "periodic": lambda option: tridiag.solve(1.0, 4.0, 1.0, ONES, periodic=option),
    "transpose": lambda option: tridiag.matmul(1.0, 4.0, 1.0, ONES, transpose=option),
    "pivoting": lambda option: tridiag.solve(1.0, 4.0, 1.0, ONES, pivoting=option),
    "check": lambda option: tridiag.solve(1.0, 4.0, 1.0, ONES, check=option),
    "overwrite_d": lambda option: tridiag.solve(1.0, 4.0, 1.0, ONES, overwrite_d=option),
    "axis": lambda option: tridiag.solve(1.0, 4.0, 1.0, ONES, axis=option),
    "reverse": lambda option: tridiag.linear_recurrence(0.5, ONES, reverse=option),
    "return_final": lambda option: tridiag.linear_recurrence(0.5, ONES, return_final=option),
    "burn": lambda option: kalman.log_likelihood(ONES[:, :1], burn=option, **kalman.models.local_level(1.0)),
    "diffuse": lambda option: kalman.log_likelihood(
        ONES[:, :1], **dict(kalman.models.local_level(1.0)) | {"diffuse": [option]}
    ),
}


@pytest.mark.parametrize("name", ["axis", "burn"])
def test_an_array_is_no_integer(name: str) -> None:
    """Not Python's word, which names no argument; an array of one integer without axes is one."""
    with pytest.raises((TypeError, ValueError), match=rf"{name} is an array of shape \(2,\); wanted"):
        OPTIONS[name](np.array([0, 1]))
    assert np.isfinite(OPTIONS[name](np.array(1))).all()


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_traced_are_to_be_static(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not JAX's own word of a conversion to a boolean, which names no argument."""
    jax = pytest.importorskip("jax")
    if library == "jax":
        monkeypatch.setitem(globals(), "ONES", jax.numpy.ones((4, 6)))
    with pytest.raises(TypeError, match=rf"{name} is traced by JAX .*static_argnames='{name}'") as refused:
        jax.jit(OPTIONS[name])(1)
    assert not isinstance(refused.value, jax.errors.JAXTypeError)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: tridiag.linear_recurrence(np.ones(3), np.ones((10, 3)), axis=0), "x has length 3 along axis 1: "),
        (lambda: tridiag.linear_recurrence(np.ones(3), np.ones((10, 3)), axis=0), r"else a\[None, :\]"),
        (lambda: tridiag.log_linear_recurrence(np.ones(3), np.ones((3, 10))), r"axis=0 .* else log_a\[:, None\]"),
        (lambda: tridiag.solve(1.0, np.ones(4), 1.0, np.ones((2, 4, 9))), r"axis=1 .* else b\[None, :, None\]"),
    ],
)
def test_coefficients_along_the_wrong_axis_are_told_the_way(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        call()


def told() -> dict[str, tuple[Any, type[Exception], str]]:
    ones = np.ones(4)

    def sparse() -> Any:
        return pytest.importorskip("scipy.sparse").eye(4).tocsr()

    aligned = functools.partial(tridiag.smith_waterman, gap=-1.0)
    solve = functools.partial(tridiag.solve, 1.0, 4 * ones, 1.0)
    return {
        "sparse d": (lambda: solve(sparse()), TypeError, r"pass a dense array, as d\.toarray\(\) is"),
        "sparse where": (lambda: solve(ones, where=sparse()), TypeError, r"as where\.toarray\(\) is"),
        "sparse init": (lambda: tridiag.linear_recurrence(ones, ones, sparse()), TypeError, r"init\.toarray\(\)"),
        "sparse scores": (lambda: aligned(sparse()), TypeError, r"scores\.toarray\(\)"),
        "a word for a mask": (lambda: solve(ones, where="abc"), TypeError, "where is a str; wanted booleans"),
        "words": (lambda: solve(np.array(["a"])), TypeError, "d has dtype str;"),
        "check": (lambda: solve(ones, check=1), TypeError, "check is 1; wanted True, False or None"),
        "real": (lambda: aligned(np.ones((3, 3), bool)), TypeError, r"one of float32, float64 \("),
        "one number": (
            lambda: aligned(np.ones((2, 3, 3)), temperature=0.0), ValueError, r"positive; found 0\.0 in float64"
        ),
        "factors": (
            lambda: tridiag.factor(1.0, 4 * ones, 1.0).solve(ones, singular="perturb"), ValueError, r"tridiag\.solve\("
        ),
        "no word": (
            lambda: tridiag.factor(1.0, 4 * ones, 1.0).solve(ones, singular=1), ValueError, "is 1; wanted 'nan'"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("case", told())
def test_what_is_told_fits_the_argument(case: str) -> None:
    call, kind, words = told()[case]
    with pytest.raises(kind, match=words):
        call()
