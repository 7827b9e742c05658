"""The verbs on tridiagonal systems: prepare the arguments, choose a backend, run it, restore the caller's dtype."""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from tridiag.calls import execute, fast_path, outputs, split
from tridiag.calls.blocks import prepare_blocks
from tridiag.calls.checks import check_readable, perturbs
from tridiag.calls.fast_path import BLOCK_SOLVES, DETERMINANTS, PRODUCTS, SOLVES
from tridiag.calls.plan import prepare, wants_check
from tridiag.calls.torch_compile import compiling, graph
from tridiag.chunked import chunked, is_chunked

Array = Any


@SOLVES.entered(
    "d", "a", "b", "c", "d", "where", "out", "axis", "backend", "pivoting", "periodic", "transpose", "check",
    "overwrite_d",
)  # fmt: skip
def solve(
    a: Array,
    b: Array,
    c: Array,
    d: Array,
    *,
    axis: int = -1,
    backend: str = "auto",
    pivoting: bool | str = "auto",
    periodic: bool = False,
    where: Array | None = None,
    transpose: bool = False,
    check: bool | None = None,
    overwrite_d: bool = False,
    out: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
    singular: str = "nan",
) -> Array:
    r"""Solve many tridiagonal systems at once.

    .. math:: a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i, \qquad i = 0 \ldots n - 1

    Parameters
    ----------
    a, b, c : array
        The diagonals, all of full length n along ``axis``. ``a[0]`` and ``c[n-1]`` are never read, unless ``periodic``.
        They broadcast against ``d``: a 1-D argument lies along ``axis``, length 1 and scalars stand for a constant, and
        a matrix shared by several right sides is eliminated once.
    d : array
        The right sides. float32, float64, complex64, complex128; float16 and bfloat16 compute in float32; integers
        promote as in the library of the arrays (NumPy, JAX, PyTorch or CuPy). Numbers, sequences of them and columns of
        pandas are taken as NumPy takes them; where an argument is a Dask array the result is a lazy one; other types
        that offer ``__array__`` raise, and say what to pass instead.
    axis : int
        The system axis in the broadcast shape.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("numba"). A named backend runs or raises.
    pivoting : bool or "auto"
        False: plain elimination. True: partial pivoting, as LAPACK. "auto": plain elimination where a certificate,
        computed on the way, shows that it is accurate; else partial pivoting and iterative refinement.
    periodic : bool
        ``a[0]`` couples row 0 with x[n-1], ``c[n-1]`` row n-1 with x[0]. Systems of three rows or more.
    where : boolean array
        Rows where it is False are taken out: couplings to them are cut, and their x is 0.
    transpose : bool
        Solve with the transposed matrix.
    check : bool or None
        None: raise for singular systems where the values are in host memory and outside a trace. False: never raise.
        True: raise, also where that must synchronise a GPU; inside a trace it is a ValueError.
    overwrite_d : bool
        Allow the solution to be written to ``d``: all but JAX return ``d`` wherever it can hold the solution
        (its shape, its dtype, writable, not overlapping another argument), JAX may alias it inside jit. ``out`` wins.
    out : array
        Takes the solution; it may not overlap an argument. Not with JAX arrays. Inside `torch.compile` it is copied
        there.
    axis_name : str or tuple of str
        Inside `jax.shard_map`, the axes of the mesh along which the rows of systems are spread: every device passes as
        many rows, in the order of the devices, and gets x of these. ``a[0]`` of a later device is read. Arrays that are
        sharded along the system axis outside of `jax.shard_map` need nothing.
    singular : str
        "nan": a singular system is NaN, and ``check`` says whether that raises. "perturb": it gets a huge, finite
        solution, that of ``A + delta I``, as with ``perturb_singular`` of JAX and TensorFlow. Not with
        ``pivoting=False`` or ``axis_name``. A GPU is waited for.

    Returns
    -------
    array
        x, of the broadcast shape, in the library and on the device of the arguments.

    Raises
    ------
    SingularSystemError
        Elimination with partial pivoting met an exactly zero pivot; see ``check``. A singular system is NaN throughout;
        no other system is affected. NaN and infinite input is not singular, and raises nothing: NaN and infinite right
        sides propagate; infinite coefficients are computed with, as in LAPACK, and may leave x finite.
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, axis, dtypes (booleans are no numbers), libraries or ``out`` do not fit; a periodic system has fewer
        than three rows.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> x = tridiag.solve(-1.0, 4.0, -1.0, np.full((2, 3), 2.0))
    >>> x
    array([[0.71428571, 0.85714286, 0.71428571],
           [0.71428571, 0.85714286, 0.71428571]])

    Notes
    -----
    Thomas algorithm and LAPACK's xGTSV; the certificate is \|L\|\|U\| <= 3 \|A\| (Higham, Accuracy and Stability of
    Numerical Algorithms, chapter 9), refinement after Skeel (1980). Inside `torch.compile` a solve of tensors is one
    operator of the graph. DTensors of PyTorch come back as DTensors: where the system axis is sharded they are solved
    by parts, six words a system exchanged (`tridiag.parts`).

    "perturb" solves again where x is not finite and A and d are: delta is eps times the largest entry of the matrix
    (eps, if all are 0), and 64 times as much until x is finite: after LAPACK's xLAGTS, which puts such numbers in the
    place of pivots. Derivatives are those of the system solved, delta held fixed. JAX and PyTorch solve all systems
    again if one is singular, NumPy that one; each looks at x once more.
    """
    perturb = singular != "nan" and perturbs(singular, pivoting, check, axis_name)
    if axis_name is None and type(d) is ndarray and not perturb:
        x = SOLVES.call(a, b, c, d, where, out, axis, backend, pivoting, periodic, transpose, check, overwrite_d)
        if x is not None:
            return x
    arguments = {"a": a, "b": b, "c": c, "d": d}
    options: dict[str, Any] = {
        "axis": axis,
        "pivoting": pivoting,
        "periodic": periodic,
        "transpose": transpose,
        "overwrite_d": overwrite_d,
        "backend": backend,
    }
    if axis_name is not None:
        return split.solve(arguments, where, out, check, options, axis_name)
    if compiling(a, b, c, d):
        return graph().solve(arguments, where, out, check, perturb, options)
    if not perturb and (short := fast_path.of_tensors("solve", d)) is not None:
        x = short(a, b, c, d, where, out, axis, backend, pivoting, periodic, transpose, check, overwrite_d)
        if x is not None:
            return x
    if is_chunked(a, b, c, d, where):
        return chunked("systems").solve(solve, arguments, where, out, check, singular, **options)
    call = prepare("solve", arguments, where=where, **options)
    if where is not None:
        arguments["where"] = where
    destination = outputs.target(call, arguments, out, overwrite_d)
    if perturb:
        return execute.solve_perturbed(call, destination)
    x = execute.solve(call, call.plan.backend, wants_check(call.plan, check), destination)
    if call.library == "jax":
        check_readable(x, check)
    return x


@PRODUCTS.entered("x", "a", "b", "c", "x", "where", "out", "axis", "periodic", "transpose")
def matmul(
    a: Array,
    b: Array,
    c: Array,
    x: Array,
    *,
    axis: int = -1,
    periodic: bool = False,
    where: Array | None = None,
    transpose: bool = False,
    out: Array | None = None,
) -> Array:
    r"""Multiply tridiagonal matrices with vectors.

    .. math:: y_i = a_i x_{i-1} + b_i x_i + c_i x_{i+1}

    Parameters
    ----------
    a, b, c, x : array
        As in `tridiag.solve`, which this undoes; all axes broadcast.
    axis, periodic, where, transpose
        As in `tridiag.solve`. Rows that ``where`` takes out give 0.
    out : array
        Where y is written, which is returned: of its shape and dtype, overlapping no argument. Not for JAX arrays.

    Returns
    -------
    array
        y, of the broadcast shape.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.solve`. A singular matrix multiplies as any other.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> tridiag.matmul(-1.0, 2.0, -1.0, np.array([1.0, 2.0, 4.0]))
    array([ 0., -1.,  6.])

    Notes
    -----
    The definition; NumPy arrays, and tensors in host memory without gradients, are read once, in compiled loops on
    threads, if Numba is installed.
    """
    if type(x) is ndarray:
        y = PRODUCTS.call(a, b, c, x, where, out, axis, periodic, transpose)
        if y is not None:
            return y
    arguments = {"a": a, "b": b, "c": c, "x": x}
    options: dict[str, Any] = {"axis": axis, "periodic": periodic, "transpose": transpose}
    if compiling(a, b, c, x):
        return graph().product(arguments, where, out, options)
    if out is None and (short := fast_path.of_tensors("matmul", x)) is not None:
        y = short(a, b, c, x, where, axis, periodic, transpose)
        if y is not None:
            return y
    if is_chunked(a, b, c, x, where):
        return chunked("products").product(matmul, arguments, where, out, **options)
    call = prepare("matmul", arguments, where=where, **options)
    destination = outputs.target(call, {**arguments, "where": where}, out, False)
    return execute.product(call, destination)


@DETERMINANTS.entered("b", "a", "b", "c", "where", "axis", "periodic", "backend")
def slogdet(
    a: Array,
    b: Array,
    c: Array,
    *,
    axis: int = -1,
    periodic: bool = False,
    where: Array | None = None,
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> tuple[Array, Array]:
    r"""Sign and logarithm of the absolute value of the determinants of tridiagonal matrices.

    .. math:: \det A = \mathrm{sign} \cdot \exp(\mathrm{logabsdet}), \qquad \det A = \pm \prod_i u_{ii}

    Parameters
    ----------
    a, b, c : array
        The diagonals, as in `tridiag.solve`; all axes broadcast.
    axis, periodic, where, backend
        As in `tridiag.solve`. A row that ``where`` takes out counts as a row of the identity.
    axis_name : str or tuple of str
        As in `tridiag.solve`, inside `jax.shard_map`: every device gets the determinants of the whole matrices.

    Returns
    -------
    sign, logabsdet : array
        Over the batch axes, as `numpy.linalg.slogdet`: a singular matrix gives 0 and -inf, and raises nothing.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.solve`.

    Examples
    --------
    >>> import tridiag
    >>> sign, logabsdet = tridiag.slogdet([0.0, 1.0], [2.0, 3.0], [5.0, 0.0])
    >>> float(sign), round(float(logabsdet), 6)
    (1.0, 0.0)

    Notes
    -----
    Elimination with partial pivoting, LAPACK's xGTTRF. `numba_thomas` takes the recurrence of the leading principal
    minors (Golub and Van Loan, Matrix Computations, section 8.4), with exponents apart, where none loses half of its
    digits: the determinant of a matrix that differs in the last bits. Where elimination loses digits to underflow, or
    overflows, each minor has an exponent, on the CPU but by `jax_scan`. Of JAX arrays whose rows lie on several
    devices each takes the product of its matrices of two rows (Muir 1882, A treatise on the theory of determinants).
    """
    if axis_name is None and type(b) is ndarray:
        found: tuple[Array, Array] | None = DETERMINANTS.call(a, b, c, where, axis, periodic, backend)
        if found is not None:
            return found
    arguments = {"a": a, "b": b, "c": c}
    options: dict[str, Any] = {"axis": axis, "pivoting": True, "periodic": periodic, "backend": backend}
    if axis_name is not None:
        return split.slogdet(arguments, where, options, axis_name)
    if compiling(a, b, c):
        return graph().slogdet(where=where, **arguments, **options)
    if (short := fast_path.of_tensors("slogdet", b)) is not None:
        both: tuple[Array, Array] | None = short(a, b, c, where, axis, periodic, backend)
        if both is not None:
            return both
    if is_chunked(a, b, c, where):
        pair: tuple[Array, Array] = chunked("determinants").determinants(slogdet, arguments, where, **options)
        return pair
    return execute.determinants(prepare("slogdet", arguments, where=where, **options))


@BLOCK_SOLVES.entered("d", "A", "B", "C", "d", "backend")
def solve_block(A: Array, B: Array, C: Array, d: Array, *, backend: str = "auto") -> Array:
    r"""Solve many block tridiagonal systems at once.

    .. math:: A_i x_{i-1} + B_i x_i + C_i x_{i+1} = d_i, \qquad i = 0 \ldots n - 1

    Parameters
    ----------
    A, B, C : array
        The blocks, (..., n, m, m) with m from 1 to 16. ``A[..., 0, :, :]`` and ``C[..., n-1, :, :]`` are never read.
        The axes before the last two broadcast against those of ``d`` before its last, as in NumPy: a block for all rows
        is (m, m), one for each system (..., 1, m, m). A matrix shared by several right sides is eliminated once.
    d : array
        The right sides, (..., n, m). dtypes as in `tridiag.solve`.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.

    Returns
    -------
    array
        x, (..., n, m), in the library and on the device of the arguments.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, dtypes or libraries do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> coupling, own = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[4.0, 1.0], [1.0, 4.0]])
    >>> tridiag.solve_block(coupling, own, coupling, np.array([[6.0, 6.0], [7.0, 7.0], [6.0, 6.0]]))
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])

    Notes
    -----
    Elimination with partial pivoting among all rows that hold a column, which are those of two block rows: LAPACK's
    xGBSV. About 9 m^3 flops a block row. A singular system, where that meets an exactly zero pivot, is NaN throughout;
    it raises nothing, and no other system is affected.
    """
    if type(d) is ndarray:
        x = BLOCK_SOLVES.call(A, B, C, d, backend)
        if x is not None:
            return x
    if compiling(A, B, C, d):
        return graph().solve_block(A, B, C, d, backend=backend)
    if (short := fast_path.of_tensors("solve_block", d)) is not None:
        x = short(A, B, C, d, backend)
        if x is not None:
            return x
    return execute.blocks_solved(prepare_blocks(A, B, C, d, backend=backend))
