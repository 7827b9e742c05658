"""Factors that JAX arrays hold on the CPU: what is solved from them, and that no rearrangement of them is mistaken."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

import tridiag
from tridiag.kernels.jobs.words import systems as J

jax = pytest.importorskip("jax")
jnp = jax.numpy

SHAPES = [
    (1, 40), (40,), (5, 6), (7, 300), (8, 20), (9, 20), (13, 31), (16, 5), (37, 7), (40, 7), (100, 64), (3, 5, 33),
]  # fmt: skip
DTYPES = ["float32", "float64", "complex64", "complex128"]


def drawn(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> list[Any]:
    """Matrices that are dominant by rows, and right sides."""
    rng = np.random.default_rng(seed)
    found = [rng.uniform(*of, shape).astype(dtype) for of in ((-1, 1), (3, 4), (-1, 1), (-1, 1))]
    if np.dtype(dtype).kind == "c":
        found = [x + (0.3j * rng.uniform(-1, 1, shape)).astype(dtype) for x in found]
    return [jnp.asarray(x) for x in found]


def assert_near(x: Any, wanted: Any, times: int = 16) -> None:
    assert x.dtype == wanted.dtype and x.shape == wanted.shape
    x, wanted = np.asarray(x), np.asarray(wanted)  # of which XLA compiles nothing
    assert abs(x - wanted).max() <= times * np.finfo(x.dtype).eps * abs(wanted).max()


def keeps(matrix: tridiag.Factorization) -> bool:
    return matrix._factors is not None and matrix._factors.tiles is not None


def without_diagonals(matrix: tridiag.Factorization) -> tridiag.Factorization:
    """The same with NaN for its matrices: it solves what is solved from factors alone."""
    found = copy.copy(matrix)
    found._matrix = tuple(x if x is None or x.dtype == bool else nan_like(x) for x in matrix._matrix)
    return found


def nan_like(x: Any) -> Any:
    return jnp.asarray(np.full(x.shape, np.nan, x.dtype))


@functools.partial(jax.jit, static_argnames="transpose")
def in_program(matrix: tridiag.Factorization, d: Any, transpose: bool) -> Any:
    return matrix.solve(d, transpose=transpose)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_solved_from_factors_alone(shape: tuple[int, ...], dtype: str, transpose: bool) -> None:
    a, b, c, d = drawn(shape, dtype)
    wanted = tridiag.solve(a, b, c, d, transpose=transpose)
    matrix = tridiag.factor(a, b, c)
    assert keeps(matrix) and not matrix.status.any() and matrix.status.shape == shape[:-1]
    assert_near(matrix.solve(d, transpose=transpose), wanted)
    bare = without_diagonals(matrix)
    assert_near(bare.solve(d, transpose=transpose, check=False), wanted)
    assert_near(in_program(bare, d, transpose=transpose), wanted)
    inside = jax.jit(lambda a, b, c, d: tridiag.factor(a, b, c).solve(d, transpose=transpose))
    assert_near(inside(a, b, c, d), wanted)


def test_a_program_of_one_solve_makes_no_factors() -> None:
    """A second solve, and one in a loop, find them."""
    given = drawn((13, 31))

    def targets(solves: Any) -> int:
        text = jax.jit(lambda a, b, c, d: solves(tridiag.factor(a, b, c), d)).lower(*given).compile().as_text()
        return text.count("tridiag_thomas_multiple_rhs") if text else 0

    assert targets(lambda F, d: F.solve(d)) == 0
    assert targets(lambda F, d: (F.solve(d), F.status)) == 0
    assert targets(lambda F, d: F.solve(F.solve(d))) == 2
    assert targets(lambda F, d: jax.lax.fori_loop(0, 3, lambda _, x: F.solve(x), d)) == 2
    twice = jax.jit(lambda a, b, c, d: (F := tridiag.factor(a, b, c)).solve(F.solve(d)))
    assert_near(twice(*given), tridiag.solve(*given[:3], tridiag.solve(*given)))


@pytest.mark.parametrize("many", [1, 3, 40])
@pytest.mark.parametrize("shape", [(40,), (5, 6), (13, 31)])
def test_more_right_sides_than_matrices(shape: tuple[int, ...], many: int) -> None:
    a, b, c, _ = drawn(shape)
    d = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (many, *shape)))
    bare = without_diagonals(tridiag.factor(a, b, c))
    for transpose in (False, True):
        wanted = tridiag.solve(a, b, c, d, transpose=transpose)
        assert_near(bare.solve(d, transpose=transpose, check=False), wanted)
        each = jax.vmap(functools.partial(in_program, transpose=transpose), in_axes=(None, 0))
        assert_near(each(bare, d), wanted)


def test_complex_right_sides_of_real_matrices() -> None:
    a, b, c, d = drawn((13, 31))
    bare = without_diagonals(tridiag.factor(a, b, c))
    assert_near(bare.solve(d * (1 + 2j), check=False), tridiag.solve(a, b, c, d * (1 + 2j)))


@pytest.mark.parametrize("shape", [(13, 31), (5, 6), (40,)])
@pytest.mark.parametrize("donated", [False, True])
def test_a_loop_over_right_sides(shape: tuple[int, ...], donated: bool) -> None:
    """With the factors outside; the first right side may be overwritten."""
    a, b, c, d = drawn(shape)

    def loop(solve: Any, d: Any) -> Any:
        return jax.lax.scan(lambda x, _: (solve(x), x.sum()), d, length=5)

    wanted = loop(lambda x: tridiag.solve(a, b, c, x), d)
    bare = without_diagonals(tridiag.factor(a, b, c))
    run = jax.jit(lambda F, d: loop(lambda x: F.solve(x, overwrite_d=donated), d), donate_argnums=(1,) * donated)
    for x, y in zip(run(bare, jnp.array(d)), wanted, strict=True):
        assert_near(x, y)


def test_matrices_of_one_axis_that_vmap_stacks() -> None:
    """Made within vmap and solved within it, or outside, or one of them."""
    a, b, c, d = drawn((20, 31))
    wanted = tridiag.solve(a, b, c, d)
    made = jax.jit(jax.vmap(tridiag.factor))(a, b, c)
    assert keeps(made)
    solve = jax.jit(jax.vmap(lambda F, d: F.solve(d)))
    assert_near(solve(without_diagonals(made), d), wanted)
    assert_near(made.solve(d), wanted)
    for k in (0, 7, 19):
        assert_near(jax.tree.map(lambda x, k=k: x[k], made).solve(d[k]), wanted[k])
    nested = jax.vmap(jax.vmap(tridiag.factor))(*(x.reshape(4, 5, 31) for x in (a, b, c)))
    assert_near(jax.vmap(jax.vmap(lambda F, d: F.solve(d)))(nested, d.reshape(4, 5, 31)).reshape(20, 31), wanted)
    one_by_one = [tridiag.factor(*(x[k] for x in (a, b, c))) for k in range(20)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *one_by_one)
    assert_near(solve(stacked, d), wanted)
    outside = tridiag.factor(a, b, c)
    assert_near(solve(without_diagonals(outside), d), wanted)
    each = jax.jit(lambda F, d: jax.lax.scan(lambda carry, given: (carry, given[0].solve(given[1])), 0, (F, d))[1])
    assert_near(each(outside, d), wanted)


def test_a_loop_over_batches_of_matrices() -> None:
    """Parts of a factorization are solved from its factors where they are those of whole groups."""
    a, b, c, d = drawn((3, 16, 31))
    each = jax.jit(lambda F, d: jax.lax.scan(lambda carry, given: (carry, given[0].solve(given[1])), 0, (F, d))[1])
    matrix = tridiag.factor(a, b, c)
    assert_near(each(without_diagonals(matrix), d), tridiag.solve(a, b, c, d))
    a, b, c, d = (x[:, :13] for x in (a, b, c, d))
    assert_near(each(tridiag.factor(a, b, c), d), tridiag.solve(a, b, c, d))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40, 20), (20, 6), (45, 9), (5, 30), (12, 40)])
def test_rearranged_factors_are_not_mistaken(shape: tuple[int, ...], dtype: str, transpose: bool) -> None:
    """Rows of all leaves alike: permuted, repeated, from two factorizations, by halves or one by one."""
    rng, count = np.random.default_rng(0), shape[0]
    first, second = drawn(shape, dtype), drawn(shape, dtype, 1)
    F, G = tridiag.factor(*first[:3]), tridiag.factor(*second[:3])
    leaves, d = (first[:3], second[:3]), first[3]

    def some(rows: Any) -> Any:
        return lambda x, y: jnp.asarray(np.asarray(x)[rows])

    def chosen(which: Any) -> Any:
        return lambda x, y: jnp.asarray(np.where(which.reshape(-1, *[1] * (x.ndim - 1)), x, y))

    near = np.arange(count)
    ways = [
        some(near[::-1]), some(rng.permutation(count)), some(near // 2), some(np.where(near == 1, 0, near)),
        some(np.roll(near, 8)), some(np.roll(near, 1)), chosen(near % 2 == 0), chosen(near < count // 2),
        chosen(near == count - 1), chosen(near < 8),
    ]  # fmt: skip
    for way in ways:
        a, b, c = map(way, *leaves)
        mixed = jax.tree.map(way, F, G)
        wanted = tridiag.solve(a, b, c, d, transpose=transpose)
        assert_near(mixed.solve(d, transpose=transpose), wanted)
        assert_near(in_program(mixed, d, transpose=transpose), wanted)


def test_groups_of_other_lengths_are_not_mistaken() -> None:
    """A group that is packed, and the beginning of one that is not."""
    a, b, c, d = drawn((3, 20, 9))
    made = jax.vmap(tridiag.factor)(a, b, c)
    wanted = tridiag.solve(a, b, c, d)
    assert_near(jax.vmap(lambda F, d: F.solve(d))(made, d), wanted)
    for rows in (slice(12), slice(8), slice(0, 16), slice(4, 20), slice(8, 20)):
        cut = jax.tree.map(lambda x, rows=rows: x[:, rows], made)
        cut._kind = cut._kind._replace(shapes=(*(x.shape[1:] for x in cut._matrix[:3]), ()))
        cut._flat = None
        assert_near(jax.vmap(lambda F, d: F.solve(d))(cut, d[:, rows]), wanted[:, rows])


@pytest.mark.parametrize("shape", [(20, 30), (5, 30), (30,)])
def test_uncertified_and_singular_matrices(shape: tuple[int, ...]) -> None:
    """Those that need pivoting are eliminated with it; singular ones are NaN alone, and their status says where."""
    a, b, c, d = drawn(shape)
    hard = (slice(None, None, 3),) * (len(shape) - 1)
    b = b.at[(*hard, slice(None, None, 2))].set(0)
    matrix = tridiag.factor(a, b, c)
    for transpose in (False, True):
        wanted = tridiag.solve(a, b, c, d, transpose=transpose)
        assert_near(matrix.solve(d, transpose=transpose), wanted, 256)
    one = (*[1] * (len(shape) - 1),)
    a, b, c = (x.at[(*one, 4)].set(0) for x in (a, b, c))
    matrix = tridiag.factor(a, b, c)
    status = tridiag.factor(*map(np.asarray, (a, b, c))).status
    assert status[one] > 0
    np.testing.assert_array_equal(matrix.status, status)
    with pytest.raises(tridiag.SingularSystemError) as raised:
        matrix.solve(d)
    assert [*map(tuple, np.atleast_2d(raised.value.indices))] == [one] or shape == (30,)
    x = matrix.solve(d, check=False)
    assert np.isnan(x[one]).all() and np.isnan(in_program(matrix, d, transpose=False)[one]).all()
    if one:
        rest = np.arange(shape[0]) != 1
        assert np.isfinite(x[rest]).all()


def test_masks() -> None:
    a, b, c, d = drawn((13, 31))
    where = jnp.asarray(np.random.default_rng(3).uniform(size=(13, 31)) < 0.7)
    matrix = tridiag.factor(a, b, c, where=where)
    for transpose in (False, True):
        wanted = tridiag.solve(a, b, c, d, where=where, transpose=transpose)
        assert_near(matrix.solve(d, transpose=transpose), wanted)
        assert_near(in_program(matrix, d, transpose=transpose), wanted)


def blocks(a: Any, b: Any, c: Any) -> Any:
    """Dense matrices of any batch."""
    n = b.shape[-1]
    rows = jnp.arange(n)
    full = jnp.zeros((*b.shape, n), b.dtype).at[..., rows, rows].set(b)
    full = full.at[..., rows[1:], rows[:-1]].set(a[..., 1:])
    return full.at[..., rows[:-1], rows[1:]].set(c[..., :-1])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(9, 12), (3, 12)])
@pytest.mark.parametrize("transpose", [False, True])
def test_derivatives(shape: tuple[int, ...], dtype: str, transpose: bool) -> None:
    """In a, b, c and d, forward and back, against dense matrices; and in d alone, with the factors outside."""
    given, weight = drawn(shape, dtype), drawn(shape, dtype, 1)[3]

    def by_factors(a: Any, b: Any, c: Any, d: Any) -> Any:
        return (weight * tridiag.factor(a, b, c).solve(d, transpose=transpose) ** 2).sum().real

    def by_dense(a: Any, b: Any, c: Any, d: Any) -> Any:
        full = blocks(a, b, c)
        full = jnp.swapaxes(full, -1, -2) if transpose else full
        return (weight * jnp.linalg.solve(full, d[..., None])[..., 0] ** 2).sum().real

    every, dots = tuple(range(4)), drawn(shape, dtype, 2)
    F = tridiag.factor(*given[:3])

    def in_one_program(f: Any) -> Any:
        """The gradient, the change along a direction, and that of the gradient in d."""

        def hessian(d: Any, dot: Any) -> Any:
            return jax.jvp(jax.grad(lambda d: f(*given[:3], d)), (d,), (dot,))[1]

        def all_of_them(given: Any, dots: Any) -> Any:
            return jax.grad(f, every)(*given), jax.jvp(f, given, dots)[1], hessian(given[3], dots[3])

        return jax.jit(all_of_them)(tuple(given), tuple(dots))

    (found, change, curved), (wanted, right, other) = map(in_one_program, (by_factors, by_dense))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(change, right, rtol=1e-9)
    np.testing.assert_allclose(curved, other, rtol=1e-9, atol=1e-9)
    of_d = jax.jit(jax.grad(lambda d, F: (weight * F.solve(d, transpose=transpose) ** 2).sum().real))
    np.testing.assert_allclose(of_d(given[3], F), wanted[3], rtol=1e-9, atol=1e-9)


def test_the_way_back_of_right_sides_reads_the_factors() -> None:
    a, b, c, d = drawn((13, 31))
    F, weight = tridiag.factor(a, b, c), drawn((13, 31), seed=1)[3]
    back = jax.jit(lambda F, d: jax.vjp(F.solve, d)[1](weight)[0])
    assert_near(back(without_diagonals(F), d), tridiag.solve(a, b, c, weight, transpose=True))


def test_derivatives_in_a_factorization_are_those_of_its_diagonals() -> None:
    a, b, c, d = drawn((13, 31))
    F = tridiag.factor(a, b, c)
    assert keeps(F)
    found = jax.grad(lambda F: (F.solve(d) ** 2).sum(), allow_int=True)(F)
    wanted = jax.grad(lambda a, b, c: (tridiag.solve(a, b, c, d) ** 2).sum(), (0, 1, 2))(a, b, c)
    for x, y in zip(found._matrix, wanted, strict=False):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(40,), (5, 9), (16, 5), (13, 31), (100, 64)])
def test_the_way_back_of_diagonals_reads_the_factors(
    shape: tuple[int, ...], dtype: str, masked: bool, transpose: bool
) -> None:
    a, b, c, d = drawn(shape, dtype)
    weight = drawn(shape, dtype, 1)[3]
    where = jnp.asarray(np.random.default_rng(3).uniform(size=shape) < 0.8) if masked else None

    def by_solve(a: Any, b: Any, c: Any) -> Any:
        return (weight * tridiag.solve(a, b, c, d, where=where, transpose=transpose)).sum().real

    def by_factors(F: Any) -> Any:
        return (weight * F.solve(d, transpose=transpose)).sum().real

    bare = without_diagonals(tridiag.factor(a, b, c, where=where))
    found = jax.jit(jax.grad(by_factors, allow_int=True))(bare)
    wanted = jax.jit(jax.grad(by_solve, (0, 1, 2)))(a, b, c)
    for x, y in zip(found._matrix, wanted, strict=False):
        assert_near(x, y, 64)


def test_copies_and_pickles() -> None:
    a, b, c, d = drawn((13, 31))
    wanted, made = tridiag.solve(a, b, c, d), tridiag.factor(a, b, c)
    for each in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), jax.tree.map(lambda x: x + 0, made)):
        assert keeps(each)
        assert_near(each.solve(d), wanted)


def test_a_program_that_returns_one() -> None:
    a, b, c, d = drawn((13, 31))
    made = jax.jit(tridiag.factor)(a, b, c)
    assert keeps(made)
    assert_near(without_diagonals(made).solve(d, check=False), tridiag.solve(a, b, c, d))
    again = jax.jit(tridiag.factor)(a, b, c)
    for x, y in zip(*map(jax.tree.leaves, (made, again)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((30, 40), {"axis": 0}), ((30, 40), {"pivoting": True}), ((30, 40), {"pivoting": False}), ((30, 4), {}),
     ((30, 40), {"periodic": True}), ((9000,), {})],
)  # fmt: skip
def test_those_that_save_nothing_are_not_kept(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    """They are solved as by `solve`."""
    a, b, c, d = drawn(shape)
    matrix = tridiag.factor(a, b, c, **options)
    assert not keeps(matrix)
    assert_near(matrix.solve(d), tridiag.solve(a, b, c, d, **options))


def test_matrices_of_broadcast_diagonals() -> None:
    """However their axes lie in memory."""
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.uniform(-1, 1, (4, 1, 11)))
    b = jnp.asarray(rng.uniform(3, 4, (1, 9, 11)))
    c = jnp.asarray(rng.uniform(-1, 1, (11,)))
    d = jnp.asarray(rng.uniform(-1, 1, (4, 9, 11)))
    matrix = tridiag.factor(a, b, c)
    for right in (d, jnp.stack([d, 2 * d]), jnp.stack([d, d[::-1], 2 * d])[:, :, ::-1]):
        for transpose in (False, True):
            assert_near(matrix.solve(right, transpose=transpose), tridiag.solve(a, b, c, right, transpose=transpose))


def test_stamps_say_which_matrices_are_uncertified() -> None:
    a, b, c, _ = drawn((20, 30))
    b = b.at[3, 5].set(0)
    stamps = np.asarray(tridiag.factor(a, b, c)._factors.stamps)
    np.testing.assert_array_equal(np.flatnonzero(stamps[:, 0] & 1 == J.UNCERTIFIED), [3])
