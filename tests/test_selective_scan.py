"""`selective_scan` by every backend: values against the definition in extended precision, gradients, memory, errors."""

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from helpers import EPS, REAL, Subject, dtype_name, installed, noise, to_numpy

import tridiag
from tridiag.backends import numba_scan
from tridiag.calls.fast_path import forget

pytestmark = [
    pytest.mark.only(verb="selective_scan"),
    # torch's own forward mode compiles its decompositions with what it has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
turned = pytest.mark.parametrize("reverse", [False, True])
sizes = pytest.mark.parametrize("sized", [False, True], ids=["plain", "with a step"])
on_jax = pytest.mark.only(library="jax")
on_torch = pytest.mark.only(library="torch")

# ------------------------------------------------------------------------------------------------------ the definition


def oracle(
    a: Any, x: Any, B: Any, C: Any, init: Any = None, *, step: Any = None, axis: int = -1, reverse: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Step by step in long double, of arrays that have all axes; the result and the last states."""
    wide = np.clongdouble if any(np.iscomplexobj(v) for v in (a, x, B, C)) else np.longdouble
    a, B, C = (np.asarray(v, wide) for v in (a, B, C))
    x, step = (None if v is None else np.asarray(v, wide)[..., None] for v in (x, step))
    coefficients, terms = (a, x * B) if step is None else (np.exp(step * a), step * x * B)
    shape = np.broadcast_shapes(coefficients.shape, terms.shape, C.shape)
    axis = axis % (len(shape) - 1)
    coefficients, terms, C = (np.moveaxis(np.broadcast_to(v, shape), axis, 0) for v in (coefficients, terms, C))
    h, y = np.zeros(terms.shape[1:], wide) if init is None else np.asarray(init, wide), np.zeros(terms.shape[:-1], wide)
    for t in reversed(range(len(y))) if reverse else range(len(y)):
        first = t == (len(y) - 1 if reverse else 0)
        h = terms[t] + (0 if first and init is None else coefficients[t] * h)
        y[t] = (C[t] * h).sum(-1)
    return np.moveaxis(y, 0, axis), h


def problem(shape: Any = (2, 30, 3), states: int = 4, dtype: str = "float64", sized: bool = True) -> dict[str, Any]:
    """Sequences along axis 1, channels along the last: coefficients for all steps, B and C for all channels."""
    rng = np.random.default_rng(0)
    batch, n, channels = shape
    one = {
        "a": noise(rng, (channels, states), dtype, -1, -0.1) if sized else noise(rng, (*shape, states), dtype, 0, 0.9),
        "x": noise(rng, shape, dtype),
        "B": noise(rng, (batch, n, 1, states), dtype),
        "C": noise(rng, (batch, n, 1, states), dtype),
        "init": noise(rng, (batch, channels, states), dtype),
    }
    return {**one, "step": rng.uniform(0.1, 1, shape).astype(one["x"].real.dtype)} if sized else one


def assert_scans(y: Any, given: dict[str, Any], last: Any = None, dtype: str | None = None, **options: Any) -> None:
    """y is the sequence up to the rounding of n steps, each relative to the sum of the sizes of its terms."""
    right = oracle(**given, **options)
    plain = {key: value for key, value in given.items() if key not in ("a", "step")}
    step = given.get("step")
    a = abs(given["a"]) if step is None else abs(np.exp(np.asarray(step)[..., None] * given["a"]))
    B = given["B"] if step is None else given["B"] * np.asarray(step)[..., None]
    bound = oracle(a, **{key: None if v is None else abs(v) for key, v in ({**plain, "B": B}).items()}, **options)
    for found, exact, size in zip((y, last), right, bound, strict=True):
        if found is not None:
            found = np.asarray(found)
            name, n = dtype or found.dtype.name, exact.size
            assert found.shape == exact.shape
            limit = 8 * (n + 8) * EPS[REAL.get(name, name)] * size
            limit += EPS[name] * abs(exact) if found is y and name in ("float16", "bfloat16") else 0
            assert (abs(found - exact) <= limit).all(), f"off by up to {float(abs(found - exact).max())}"


def scan(backend: Subject, given: dict[str, Any], **options: Any) -> Any:
    """From NumPy arrays to NumPy arrays."""
    arrays = {key: backend.array(value) for key, value in given.items()}
    found = tridiag.selective_scan(**arrays, backend=backend.name, **options)
    return tuple(map(to_numpy, found)) if isinstance(found, tuple) else to_numpy(found)


# -------------------------------------------------------------------------------------------------------------- values


@turned
@sizes
@pytest.mark.parametrize(("shape", "states"), [((2, 30, 3), 4), ((1, 1, 1), 1), ((1, 70, 20), 17), ((3, 2, 2), 33)])
def test_values(backend: Subject, shape: Any, states: int, sized: bool, reverse: bool) -> None:
    """Fewer states than lanes, and more; sequences that fill no group; steps that fill no chunk."""
    given = problem(shape, states, sized=sized)
    for values in (given, {**given, "init": None}):
        y, last = scan(backend, values, axis=1, reverse=reverse, return_final=True)
        assert_scans(y, values, last, axis=1, reverse=reverse)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_dtypes(backend: Subject, dtype: str) -> None:
    if dtype.startswith("complex") and backend.compiled:
        pytest.skip("computes selective_scan in real numbers")
    given = problem(dtype=dtype)
    y, last = scan(backend, given, axis=1, return_final=True)
    assert y.dtype == last.dtype == dtype
    assert_scans(y, given, last, axis=1)


@turned
def test_broadcasting(backend: Subject, reverse: bool) -> None:
    """Whatever is constant along an axis, states too, is the same as copied out to full size."""
    rng = np.random.default_rng(1)
    full = {"x": (4, 3, 9), "a": (4, 3, 9, 5), "B": (4, 3, 9, 5), "C": (4, 3, 9, 5), "step": (4, 3, 9)}
    for cut in (
        {"a": (5,)},
        {"a": (3, 1, 5), "B": (4, 1, 9, 1)},
        {"C": (9, 5)},
        {"x": (9,), "step": (3, 1)},
        {"B": ()},
    ):
        shapes = {**full, **cut}
        given = {name: rng.uniform(-0.5, 0.5, shape) for name, shape in shapes.items()}
        init = rng.uniform(-1, 1, (3, 1))
        whole = {name: np.broadcast_to(value, full[name]) for name, value in given.items()}
        whole["init"] = np.broadcast_to(init, (4, 3, 5))
        assert_scans(scan(backend, {**given, "init": init}, reverse=reverse), whole, reverse=reverse)


def test_any_memory_layout(backend: Subject) -> None:
    """Arrays are read where they lie: steps last, states before them, or backwards."""
    given = problem((2, 12, 6))
    wanted = scan(backend, given, axis=1)
    moved = {
        name: np.moveaxis(np.moveaxis(v, 1, -1).copy(), -1, 1) for name, v in given.items() if name not in ("a", "init")
    }
    flipped = {name: v[..., ::-1].copy()[..., ::-1] for name, v in given.items()}
    for other in ({**given, **moved}, flipped):
        np.testing.assert_allclose(scan(backend, other, axis=1), wanted, rtol=1e-13, atol=1e-13)


@turned
@sizes
@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("own", [False, True], ids=["shared", "coefficients of its own"])
@pytest.mark.parametrize("n", [1, 3, 6, 64, 131])
def test_sequences_that_lie_apart(backend: Subject, n: int, own: bool, sized: bool, reverse: bool) -> None:
    """Each in a row, or two numbers from step to step, more and fewer of them than there are lanes."""
    rng = np.random.default_rng(n)
    for sequences, states, apart in ((1, 1, 1), (7, 3, 1), (8, 1, 2), (19, 2, 1), (33, 5, 2)):
        x, step = (rng.uniform(0.1, 1, (sequences, apart * n))[:, ::apart] for _ in range(2))
        given = {
            "a": noise(rng, (sequences if own else 1, 1, states), "float64", -1, -0.1) + (0 if sized else 1),
            "x": x,
            "B": noise(rng, (n, states), "float64"),
            "C": noise(rng, (n, states), "float64"),
            "init": noise(rng, (sequences, states), "float64"),
            **({"step": step} if sized else {}),
        }
        y, last = scan(backend, given, axis=1, reverse=reverse, return_final=True)
        wide = {**given, "a": np.broadcast_to(given["a"], (sequences, n, states))}
        assert_scans(y, wide, last, reverse=reverse, axis=1)


@sizes
@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("last", [1, -1], ids=["in rows", "side by side"])
def test_few_sequences_are_shared_out(
    backend: Subject, last: int, sized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer than lanes, or some more, among any number of threads: none twice and none left out."""
    monkeypatch.setattr(numba_scan, "WORTH_A_THREAD", 0)
    rng = np.random.default_rng(3)
    for count, states in ((1, 3), (2, 3), (3, 17), (9, 1), (17, 2), (40, 5)):
        given = {
            "a": noise(rng, (count, 1, states), "float64", -1, -0.1) + (0 if sized else 1),
            "x": noise(rng, (count, 70), "float64"),
            "B": noise(rng, (70, states), "float64"),
            "C": noise(rng, (70, states), "float64"),
            **({"step": rng.uniform(0.1, 1, (count, 70))} if sized else {}),
        }
        wide = {**given, "a": np.broadcast_to(given["a"], (count, 70, states))}
        if last == -1:  # the channels
            given |= {k: np.ascontiguousarray(given[k].T) for k in ("x", "step") if k in given}
            given |= {"a": given["a"][:, 0], "B": given["B"][:, None], "C": given["C"][:, None]}
        for workers in (1, 2, 3, 5):
            monkeypatch.setattr(numba_scan, "threads", lambda workers=workers: workers)
            forget()
            y, final = scan(backend, given, axis=max(last, 0), return_final=True)
            assert_scans(y if last == 1 else y.T, wide, final, axis=1)
    forget()


@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("axis", [1, -1], ids=["side by side", "apart"])
@pytest.mark.parametrize("own", [False, True], ids=["coefficients of steps", "coefficients of channels"])
def test_a_vector_has_channels_of_one_batch_entry_alone(backend: Subject, own: bool, axis: int) -> None:
    """Batch entries have channels that fill no vector, or one and a part: none is computed as those of the next are."""
    rng = np.random.default_rng(4)
    for channels in (3, 7, 9, 15):
        given = {
            "a": noise(rng, (1, 1, channels, 5) if own else (6, 20, 1, 5), "float64", -0.9, 0.9),
            "x": noise(rng, (6, 20, channels), "float64"),
            "B": noise(rng, (6, 20, 1, 5), "float64"),
            "C": noise(rng, (6, 20, 1, 5), "float64"),
        }
        if axis == -1:
            given = {key: np.ascontiguousarray(np.swapaxes(value, 1, 2)) for key, value in given.items()}
        y, last = scan(backend, given, axis=axis, return_final=True)
        assert_scans(y, given, last, axis=axis)


def test_the_last_states_continue_a_sequence(backend: Subject) -> None:
    given = problem()
    head, tail = ({**given, **{k: given[k][:, part] for k in "xBC"}, "step": given["step"][:, part]} for part in (
        slice(0, 11), slice(11, None)))  # fmt: skip
    first, states = scan(backend, head, axis=1, return_final=True)
    second, last = scan(backend, {**tail, "init": states}, axis=1, return_final=True)
    assert_scans(np.concatenate((first, second), 1), given, last, axis=1)


@turned
@sizes
def test_what_would_multiply_nothing_is_not_read(backend: Subject, sized: bool, reverse: bool) -> None:
    """Without init the coefficients of the first step may be NaN."""
    given = {**problem(sized=sized), "init": None}
    given["a"] = np.broadcast_to(given["a"], (2, 30, 3, 4)).copy()
    clean = scan(backend, given, axis=1, reverse=reverse)
    given["a"][:, -1 if reverse else 0] = np.nan
    np.testing.assert_array_equal(scan(backend, given, axis=1, reverse=reverse), clean)


def test_a_sequence_that_is_not_finite_reaches_no_other(backend: Subject) -> None:
    given = problem((2, 9, 20), 5)
    clean = scan(backend, given, axis=1)
    given["x"][1, 4, 7] = np.nan
    y = scan(backend, given, axis=1).copy()
    assert np.isnan(y[1, 4:, 7]).all()
    y[1, 4:, 7] = clean[1, 4:, 7]
    np.testing.assert_array_equal(y, clean)


def test_exponentials_at_the_ends_of_the_range(backend: Subject) -> None:
    """Coefficients that vanish, overflow, are infinite or NaN; each the exponential of its own."""
    a = np.array([-1e300, -np.inf, -745.0, -700.0, -1e-300, 0.0, 1e-9, 700.0, 709.7, 710.0, np.inf, np.nan])
    y = scan(
        backend, {"a": a[:, None, None], "x": np.zeros((12, 1)), "B": 1.0, "C": 1.0, "init": 1.0, "step": np.ones(1)}
    )
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(y[:, 0], np.exp(a), rtol=1e-14, atol=1e-307)


@pytest.mark.only(library=("numpy", "torch"))  # XLA takes subnormal numbers for zero
def test_subnormal_coefficients_count_beside_large_states(backend: Subject) -> None:
    """Whether states or sequences fill the lanes, and in gradients."""
    start, least = 1e300, 2.0**-1074
    a, init, step = np.array([-740.0]), np.full((40, 3, 1), start), np.ones((40, 1, 3))
    right = start * np.exp(np.longdouble(-740))
    for own in (a, np.broadcast_to(a, (40, 1, 3, 1))):
        given = {"a": own, "x": np.zeros((40, 1, 3)), "B": 1.0, "C": 1.0, "init": init, "step": step}
        assert (abs(scan(backend, given, axis=1) - right) <= start * least).all()
    if backend.library == "torch":
        leaf = backend.array(init).requires_grad_()
        given = {name: backend.array(value) for name, value in given.items()} | {"init": leaf}
        y = tridiag.selective_scan(**given, axis=1, backend=backend.name)
        (y * start).sum().backward()
        assert (abs(to_numpy(leaf.grad) - right) <= start * least).all()


@pytest.mark.parametrize(("shape", "states"), [((0, 5, 2), 3), ((2, 0, 3), 3), ((2, 5, 3), 0)])
def test_nothing_to_scan(backend: Subject, shape: Any, states: int) -> None:
    given = problem(shape, states)
    y, last = scan(backend, given, axis=1, return_final=True)
    assert y.shape == shape and not y.any()
    np.testing.assert_array_equal(last, given["init"])


# ------------------------------------------------------------------------------------------------------ half precision

HALVES = {"numpy": ("float16",), "cupy": ("float16",), "torch": ("float16", "bfloat16"), "jax": ("float16", "bfloat16")}


def test_halves_are_computed_in_single(backend: Subject) -> None:
    """The result is that of single precision, rounded once, whatever the coefficients and the states are of."""
    given = problem((2, 200, 3))
    for dtype in HALVES[backend.library]:
        halves = {name: backend.array(given[name], dtype if name in "xBC" else "float32") for name in given}
        single = {name: backend.array(to_numpy(value), "float32") for name, value in halves.items()}
        y, last = tridiag.selective_scan(**halves, axis=1, backend=backend.name, return_final=True)
        wanted, states = tridiag.selective_scan(**single, axis=1, backend=backend.name, return_final=True)
        assert dtype_name(y) == dtype and dtype_name(last) == "float32"
        np.testing.assert_array_equal(to_numpy(y), to_numpy(backend.array(to_numpy(wanted), dtype)))
        np.testing.assert_array_equal(to_numpy(last), to_numpy(states))
        y = tridiag.selective_scan(**{**halves, "B": 1.0}, axis=1, backend=backend.name)
        assert dtype_name(y) == dtype


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.only(library="numpy")
def test_states_are_not_stored(backend: Subject) -> None:
    given = problem((1, 4096, 8), 16)
    scan(backend, given, axis=1)
    tracemalloc.start()
    scan(backend, given, axis=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < given["x"].nbytes * 16 / 4


@on_jax
def test_a_gradient_keeps_the_states_of_some_steps(backend: Subject) -> None:
    import jax

    given = {name: backend.array(value) for name, value in problem((1, 4096, 8), 16).items()}
    loss = jax.jit(jax.grad(lambda x: tridiag.selective_scan(**{**given, "x": x}, axis=1, backend=backend.name).sum()))
    found = loss.lower(given["x"]).compile().memory_analysis()
    assert found.temp_size_in_bytes < given["x"].nbytes * 16


@pytest.mark.only(library=("numpy", "torch"))
def test_into_an_array_of_the_caller(backend: Subject) -> None:
    given = problem()
    arrays = {name: backend.array(value) for name, value in given.items()}
    out = backend.array(np.zeros((2, 3, 30)))
    out = out.transpose(1, 2) if backend.library == "torch" else out.swapaxes(1, 2)
    assert tridiag.selective_scan(**arrays, axis=1, backend=backend.name, out=out) is out
    assert_scans(to_numpy(out), given, axis=1)
    with pytest.raises(ValueError, match="out shares memory with x"):
        tridiag.selective_scan(**arrays, axis=1, backend=backend.name, out=arrays["x"])
    with pytest.raises(ValueError, match="the result has shape"):
        tridiag.selective_scan(**arrays, axis=1, backend=backend.name, out=backend.array(np.zeros(3)))


# ----------------------------------------------------------------------------------------------------------- gradients


def not_interpreted(backend: Subject) -> None:
    """Gradients are composed as those of `torch_scan`."""
    if backend.interpreted:
        pytest.skip("takes minutes where its kernels are interpreted")


def small(sized: bool, init: bool = True) -> dict[str, Any]:
    given = problem((2, 7, 2), 3, sized=sized)
    return given if init else {**given, "init": None}


@turned
@sizes
@on_torch
@pytest.mark.parametrize("init", [False, True])
def test_finite_differences_under_torch(backend: Subject, sized: bool, init: bool, reverse: bool) -> None:
    not_interpreted(backend)
    import torch

    given = {k: v for k, v in small(sized, init).items() if v is not None}
    tensors = [backend.array(v).requires_grad_() for v in given.values()]

    def function(*values: Any) -> Any:
        named = dict(zip(given, values, strict=True))
        return tridiag.selective_scan(**named, axis=1, reverse=reverse, return_final=True, backend=backend.name)

    assert torch.autograd.gradcheck(function, tensors, fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


@on_torch
def test_some_arguments_alone_have_gradients(backend: Subject) -> None:
    """Each by itself the same as all together, those that are shared by channels or steps among them."""
    not_interpreted(backend)
    given = {k: backend.array(v) for k, v in small(True).items()}

    def gradients(*names: str) -> list[Any]:
        leaves = {k: v.clone().requires_grad_(k in names) for k, v in given.items()}
        y = tridiag.selective_scan(**leaves, axis=1, backend=backend.name)
        y.square().sum().backward()
        assert all(v.grad is None for k, v in leaves.items() if k not in names)
        return [leaves[k].grad for k in names]

    together = dict(zip(given, gradients(*given), strict=True))
    for name in given:
        np.testing.assert_allclose(*map(to_numpy, (gradients(name)[0], together[name])), rtol=1e-12, atol=1e-13)


CUTS: dict[str, dict[str, Any]] = {  # the axes along which operands are constant
    "none": {},
    "coefficients of states": {"a": (5,)},
    "B and C for all channels": {"B": (2, 70, 1, 5), "C": (2, 70, 1, 5)},
    "C for all steps, B for all states": {"B": (2, 70, 20, 1), "C": (20, 5)},
}


@turned
@sizes
@on_torch
@pytest.mark.only(compiled=True)
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("cut", CUTS)
def test_compiled_gradients_are_those_of_the_reference(
    backend: Subject, cut: str, axis: int, sized: bool, reverse: bool
) -> None:
    """Of sequences that fill no group, groups that share a sum or do not, and steps that fill no piece."""
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 70, 20, 5), "x": (2, 70, 20), "B": (2, 70, 20, 5), "C": (2, 70, 20, 5), **CUTS[cut]}
    given = {name: rng.uniform(-1, -0.1, shape) for name, shape in shapes.items()}
    if sized:
        given["step"] = rng.uniform(0.1, 1, shapes["x"])

    def gradients(name: str) -> list[Any]:
        leaves = {key: backend.array(value).requires_grad_() for key, value in given.items()}
        y, last = tridiag.selective_scan(**leaves, axis=axis, reverse=reverse, return_final=True, backend=name)
        (y.sin().sum() + last.cos().sum()).backward()
        return [leaf.grad for leaf in leaves.values()]

    for found, wanted in zip(gradients(backend.name), gradients("torch_scan"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12 * float(wanted.abs().max()))


@on_torch
def test_transforms_of_torch(backend: Subject) -> None:
    not_interpreted(backend)
    import torch

    given = {k: backend.array(v) for k, v in small(True).items()}

    def loss(x: Any, C: Any) -> Any:
        return tridiag.selective_scan(**{**given, "x": x, "C": C}, axis=1, backend=backend.name).square().sum()

    leaves = [given[k].clone().requires_grad_() for k in "xC"]
    loss(*leaves).backward()
    for found, leaf in zip(torch.func.grad(loss, (0, 1))(given["x"], given["C"]), leaves, strict=True):
        np.testing.assert_allclose(to_numpy(found), to_numpy(leaf.grad), rtol=1e-12)
    stacked = torch.stack((given["x"], 2 * given["x"]))
    found = torch.func.vmap(lambda x: tridiag.selective_scan(**{**given, "x": x}, axis=1, backend=backend.name))(
        stacked
    )
    for one, x in zip(found, stacked, strict=True):
        y = tridiag.selective_scan(**{**given, "x": x}, axis=1)
        np.testing.assert_allclose(to_numpy(one), to_numpy(y), rtol=1e-12, atol=1e-14)


def assert_differentiates(backend: Subject, given: dict[str, Any], order: int) -> None:
    """Forward and backward, against finite differences."""
    import jax
    from jax.test_util import check_grads

    given = {k: v for k, v in given.items() if v is not None}

    def function(*values: Any) -> Any:
        named = dict(zip(given, map(backend.array, values), strict=True))
        return tridiag.selective_scan(**named, axis=1, return_final=True, backend=backend.name)

    check_grads(jax.jit(function), [*map(backend.array, given.values())], order, ("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
@pytest.mark.parametrize(("sized", "init"), [(False, False), (True, True)])
def test_finite_differences_under_jax(backend: Subject, sized: bool, init: bool) -> None:
    assert_differentiates(backend, small(sized, init), 1)


@on_jax
@pytest.mark.slow
def test_second_derivatives_under_jax(backend: Subject) -> None:
    assert_differentiates(backend, small(True, False), 2)


@on_jax
def test_transforms_of_jax(backend: Subject) -> None:
    import jax

    given = {k: backend.array(v) for k, v in small(True).items()}

    def of_x(x: Any) -> Any:
        return tridiag.selective_scan(**{**given, "x": x}, axis=1, backend=backend.name)

    stacked = jax.numpy.stack((given["x"], 2 * given["x"]))
    both = jax.jit(jax.vmap(of_x))(stacked)
    np.testing.assert_allclose(both, jax.numpy.stack([of_x(x) for x in stacked]), rtol=1e-12)


@pytest.mark.skipif(not (installed("jax") and installed("torch")), reason="needs jax and torch")
@pytest.mark.only(library="torch")
def test_what_is_not_read_has_no_gradient(backend: Subject) -> None:
    """NaN in the coefficients before the first step reaches no gradient, in either library."""
    import jax

    given = {**small(True), "init": None}
    given["a"] = np.broadcast_to(given["a"], (2, 7, 2, 3)).copy()
    given["a"][:, 0] = np.nan
    a = backend.array(given["a"]).requires_grad_()
    others = {k: backend.array(v) for k, v in given.items() if k != "a"}
    tridiag.selective_scan(a, **others, axis=1, backend=backend.name).sum().backward()
    grad = jax.grad(lambda a: tridiag.selective_scan(**{**given, "a": a}, axis=1).sum())(jax.numpy.asarray(given["a"]))
    np.testing.assert_allclose(grad, to_numpy(a.grad), rtol=1e-10)
    assert not np.asarray(grad)[:, 0].any()


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.only(library="numpy")
def test_what_is_wrong_is_said(backend: Subject) -> None:
    given = problem()
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"C": given["C"][..., :3]}, ValueError, "the shapes do not broadcast"),
        ({"x": given["x"][:, :7]}, ValueError, "the shapes do not broadcast"),
        ({"init": given["init"][0, 0, :2]}, ValueError, "init has shape"),
        ({"axis": 3}, ValueError, "axis 3 is out of range"),
        ({"axis": 1.5}, TypeError, "axis is 1.5"),
        ({"reverse": 1}, TypeError, "reverse is 1"),
        ({"return_final": "no"}, TypeError, "return_final is 'no'"),
        ({"B": None}, TypeError, "B is None"),
        ({"B": given["B"] > 0}, TypeError, "B has dtype bool"),
        ({"a": (given["a"], given["a"])}, TypeError, "a is a tuple of arrays"),
        ({"backend": "scipy_gtsv"}, tridiag.BackendError, "does not have the verb selective_scan"),
        ({"x": 1.0, "B": np.ones(4), "C": 1.0, "step": None, "a": 0.5}, ValueError, "has the axis of the steps"),
    ]
    for change, error, message in wrong:
        with pytest.raises(error, match=message):
            tridiag.selective_scan(**{**given, "axis": 1, "backend": backend.name, **change})


@pytest.mark.parametrize(("batch", "steps", "channels"), [(1, 6, 6), (6, 6, 6), (1, 6, 1), (3, 1, 5)])
@pytest.mark.parametrize("name", ["B", "C"])
def test_steps_are_not_taken_for_channels(batch: int, steps: int, channels: int, name: str) -> None:
    """In Mamba B and C have no axis of channels; where lengths are equal that broadcasts, against the wrong axes."""
    x, one = np.ones((batch, steps, channels)), np.ones((batch, steps, 4))
    given = {"a": 0.5, "B": 1.0, "C": np.ones(4)} | {name: one}
    with pytest.raises(ValueError, match=rf"{name}\[..., None, :\] is one for each step of all channels"):
        tridiag.selective_scan(x=x, axis=1, **given)
    found = tridiag.selective_scan(x=x, axis=1, **given | {name: one[..., None, :]})
    assert found.shape == x.shape


@pytest.mark.parametrize(
    ("shape", "axis", "added"),
    [((3, 3, 5), -1, "[..., None, :, :]"), ((5, 5, 5), 0, "[..., None, :]"), ((6, 1, 3), 0, "[..., None, :]")],
    ids=["steps last", "steps first", "steps first, one series"],
)
def test_steps_in_another_place_are_not_taken_for_channels(shape: tuple[int, ...], axis: int, added: str) -> None:
    """Results would be those of other steps or channels, or have axes of their own, without a word."""
    random = np.random.default_rng(0)
    x = random.normal(size=shape)
    channels = 1 if axis == -1 else 2
    B = random.normal(size=(*np.delete(shape, channels), 4))
    with pytest.raises(ValueError, match=rf"B{re.escape(added)} is one for each step of all channels, B\[None\] one"):
        tridiag.selective_scan(0.5, x, B, 1.0, axis=axis)
    found = tridiag.selective_scan(0.5, x, np.expand_dims(B, channels), 1.0, axis=axis)
    wanted = [tridiag.selective_scan(0.5, np.take(x, k, channels), B, 1.0, axis=axis) for k in range(shape[channels])]
    np.testing.assert_allclose(found, np.stack(wanted, channels), rtol=1e-14, atol=1e-14)


def test_one_series_whose_steps_are_last_may_leave_channels_out() -> None:
    """There is one way to take them."""
    x, B = np.random.default_rng(0).normal(size=(1, 3, 5)), np.random.default_rng(1).normal(size=(1, 5, 4))
    found = tridiag.selective_scan(0.5, x, B, 1.0)
    np.testing.assert_array_equal(found, tridiag.selective_scan(0.5, x, B[..., None, :, :], 1.0))


@pytest.mark.parametrize(
    ("shape", "axis", "added"), [((2, 6, 3), 1, "[..., None, :]"), ((2, 3, 6), -1, "[..., None, :, :]")]
)
def test_shapes_of_steps_without_channels_are_told(shape: tuple[int, ...], axis: int, added: str) -> None:
    with pytest.raises(ValueError, match=rf"; B{re.escape(added)} is that of all channels$"):
        tridiag.selective_scan(0.5, np.ones(shape), np.ones((2, 6, 4)), 1.0, axis=axis)
