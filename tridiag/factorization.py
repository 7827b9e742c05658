"""A matrix eliminated once, for many right sides that come one after the other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy import ndarray

from tridiag import systems
from tridiag.backends import BACKENDS, Backend
from tridiag.calls import execute, fast_path, outputs, split
from tridiag.calls.checks import check_axis, check_readable
from tridiag.calls.fast_path import FACTORED_SOLVES, FACTORINGS, BoundFactors, Eliminated, Kind, Made, Shapes
from tridiag.calls.plan import UNASKED, Call, Plan, axis_alone, is_one, prepare, wants_check
from tridiag.calls.recall import Recall
from tridiag.calls.torch_compile import compiling, graph
from tridiag.derivatives import runner_of
from tridiag.libraries.arrays import check_sequence, module_of, taking
from tridiag.problems.forms import Shape, align, broadcast
from tridiag.selection.choose import choose

Array = Any


class Later:
    """An attribute of a `Factorization` that is found when it is asked for; then the object itself has it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, found: Any, owner: type) -> Any:
        if found is None:
            return self
        if not found._found():
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}", name=self.name, obj=found)
        return found.__dict__[self.name]


class Factorization:
    """The elimination of many tridiagonal matrices, made by `tridiag.factor`.

    Under JAX it is a pytree; its differentiable leaves are a, b and c, the factors are constants.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> matrix = tridiag.factor(-1.0, np.full(3, 4.0), -1.0)
    >>> matrix.solve(np.array([3.0, 2.0, 3.0]))
    array([1., 1., 1.])
    >>> int(matrix.status)
    0
    >>> matrix @ np.ones(3)
    array([3., 2., 3.])
    >>> matrix
    Factorization(shape=(3,), axis=-1, dtype=float64, library=numpy, backend=numba_thomas, pivoting='auto')
    """

    _source: tuple[Any, BoundFactors] | None  # what attributes are found from when one is asked for; or None
    _matrix: Any = Later()
    _options: Any = Later()
    _name: Any = Later()
    _kind: Any = Later()
    _factors: Any = Later()
    _status: Any = Later()
    _free: Any = Later()
    _recall: Any = Later()
    _flat: Any = Later()
    _made_in: Any = Later()
    _solved: Any = Later()
    __array_ufunc__ = None  # x @ F, of a NumPy array, is refused, and not taken for a product of objects

    def __init__(
        self,
        matrix: tuple[Any, ...],
        options: dict[str, Any],
        name: str,
        kind: Kind,
        factors: Any,
        status: Any,
        free: bool = False,
    ) -> None:
        self._source = None
        self._matrix = matrix
        self._options = options
        self._name = name
        self._kind = kind
        self._factors = factors
        self._status = status
        self._free = free  # whether the backend was not named
        self._recall = Recall(seek_windows=factors is None)  # what calls with plain arrays depend on
        self._flat = None  # what it is as a pytree, once it was one
        self._made_in = None  # where it was traced, if it was, and has factors there
        self._solved = False  # whether a right side was solved since then

    @classmethod
    def of(cls, made: tuple[Any, BoundFactors]) -> Factorization:
        """That of a storage, or of what was made of matrices, and of what is known of these.

        What attributes hold of it is found when one of them is asked for.
        """
        found = object.__new__(cls)
        found._source = made
        return found

    def _found(self) -> bool:
        """Find what attributes hold; whether that was to be done."""
        found = self.__dict__.get("_source")
        if found is None:
            return False
        made, bound = found
        matrix, factors, status = made if isinstance(made, Made) else bound.parts(made)
        whole = Factorization(matrix, bound.options, bound.name, bound.kind, factors, status, bound.free)
        self.__dict__.update(vars(whole))
        return True

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles have of it: calls with plain arrays find out anew what they depend on."""
        self._found()
        return self.__dict__ | {"_recall": self._recall.anew(), "_flat": None, "_made_in": None}

    @property
    def status(self) -> Array:
        """For each matrix 0, or 1 + the column of the zero pivot that elimination with partial pivoting met."""
        if self._is_being_traced():
            return runner_of(self._kind.library).status_alone(self._prepared(), self._name)
        if self._status is None:  # inside `torch.func`
            self._status = runner_of(self._kind.library).find_zero_pivots(self._prepared())
        return self._status

    @property
    def backend(self) -> str:
        """The name of the backend that made it."""
        return self._name

    @property
    def shape(self) -> Shape:
        """The broadcast shape of a, b, c and where, and so of one right side for each matrix."""
        given = dict(zip((*"abc", "where"), shapes_of(self._matrix), strict=True))
        axis = self._placed(tuple(given.values()))["axis"]
        lifted, _ = align(given, -1 if max(map(len, given.values())) <= 1 else axis)
        return broadcast(lifted, given)

    @property
    def axis(self) -> int:
        """The system axis, counted from the end; that of a single matrix as `factor` was given it, for right sides."""
        axis: int = self._options["axis"]
        return axis

    @property
    def dtype(self) -> Any:
        """The dtype, of the library of the matrices, in which they were eliminated."""
        return module_of(self._kind.library).dtype(self._kind.dtype)

    def __repr__(self) -> str:
        """One line, from what is known without a look at the arrays."""
        try:
            shape: Any = self.shape
        except ValueError:  # as a pytree it may hold anything
            shape = "unknown"
        kind, options = self._kind, self._options
        told = f"shape={shape}, axis={self.axis}, dtype={kind.dtype}, library={kind.library}, backend={self._name}"
        told += f", pivoting={options['pivoting']!r}" + ", periodic=True" * bool(options["periodic"])
        return f"Factorization({told}{'' if kind.axis_name is None else f', axis_name={kind.axis_name!r}'})"

    def __matmul__(self, x: Array) -> Array:
        r"""Multiply the matrices, of which it has copies, with vectors.

        .. math:: y = A x

        Parameters
        ----------
        x : array
            The vectors. They lie along `axis`, and broadcast, as right sides do; with axis=-1 a 2-D array has one in
            each row, not in each column.

        Returns
        -------
        array
            y, as `tridiag.matmul`; bad input raises as there. A singular matrix multiplies as any other.
        """
        shapes, axis_name = shapes_of(self._matrix), self._kind.axis_name
        options = self._placed(shapes)
        if axis_name is not None:
            raise TypeError(
                f"a factorization with axis_name={axis_name!r} has the rows of one device, and the product takes all; "
                "multiply sharded arrays by tridiag.matmul outside of jax.shard_map"
            )
        if self._kind.from_front:
            self._check_rank(np.ndim(x), max(map(len, shapes)))
        a, b, c, where = self._matrix
        return systems.matmul(a, b, c, x, where=where, axis=options["axis"], periodic=options["periodic"])

    def solve(
        self,
        d: Array,
        transpose: bool = False,
        out: Array | None = None,
        overwrite_d: bool = False,
        check: bool | None = None,
        singular: str = "nan",
    ) -> Array:
        r"""Solve with new right sides.

        .. math:: A x = d, \qquad \text{or } A^T x = d

        Parameters
        ----------
        d : array
            The right sides; they broadcast with the matrix as in `tridiag.solve`. With more axes than the matrix they
            need a matrix that was made with a negative ``axis``.
        transpose : bool
            Solve with the transposed matrix.
        out : array
            Takes the solution; see `tridiag.solve`.
        overwrite_d : bool
            Allow the solution to be written to ``d``, as in `tridiag.solve`. ``out`` wins.
        check : bool or None
            Whether singular systems raise, as in `tridiag.solve`: None, where values are in host memory and outside a
            trace; False, never; True, also where that synchronises a GPU, and inside a trace it is a ValueError.
        singular : str
            "nan". Factors are of the matrices as they are: "perturb" raises, and is for `tridiag.solve`.

        Returns
        -------
        array
            x; a singular system is NaN throughout.

        Raises
        ------
        SingularSystemError, ValueError, TypeError
            As `tridiag.solve`.
        """
        if type(d) is ndarray and singular == "nan" and (plain := self._recall.plain) is not None:
            x = FACTORED_SOLVES.call(plain, d, transpose, out, check, overwrite_d)
            if x is not None:
                return x
        library = self._kind.library
        if singular != "nan":
            refuse_to_perturb(singular)
        if type(d) is ndarray and library == "numpy" and (known := self._recalled()):
            x = FACTORED_SOLVES.call(known, d, transpose, out, check, overwrite_d)
            if x is not None:
                return x
        if compiling(d):
            return graph().outside(self.solve, d, transpose, out, overwrite_d=overwrite_d, check=check)
        if library in ("jax", "torch") and (short := fast_path.of_tensors("solve_factored", d)) is not None:
            known = self._recalled()
            x = short(known, d, transpose, out, check, overwrite_d) if known else None
            if x is not None:
                return x
        (a, b, c, where), shapes = self._matrix, shapes_of(self._matrix)
        if library == "jax" and self._factors is None:  # nothing is kept
            name = "auto" if self._free else self._name
            options = self._placed(shapes) | {"where": where, "backend": name, "axis_name": self._kind.axis_name}
            options |= {"transpose": transpose, "overwrite_d": overwrite_d, "check": check}
            if self._kind.from_front:
                self._check_rank(np.ndim(d), max(map(len, shapes)))
            return systems.solve(a, b, c, d, out=out, **options)
        arguments = {"a": a, "b": b, "c": c, "d": d}
        axis_name, options = self._kind.axis_name, self._placed(shapes)
        options = options | {"transpose": transpose, "overwrite_d": overwrite_d}
        call = rows_or_whole("solve", arguments, where, options, axis_name)
        if self._kind.from_front:
            self._check_rank(len(call.form.shape), max(map(len, shapes)))
        if where is not None:
            arguments["where"] = where
        destination = outputs.target(call, arguments, out, overwrite_d)
        checked = wants_check(call.plan, check)
        dtype = execute.matrix_dtype(call)
        kind = Kind(call.library, dtype, call.form.n, shapes, self._kind.from_front, axis_name)
        factors = self._factors if kind == self._kind else None
        if factors is None and kind._replace(shapes=self._kind.shapes) == self._kind:
            factors = getattr(self._factors, "moved", None)
        if factors is not None and not self._solved and self._is_being_traced():
            factors = None  # if this is the only solve, the program makes none
        self._solved = True
        backend = BACKENDS[self._name] if kind.library == self._kind.library else choose(call.problem).backend
        other = self._quicker(call.plan, backend.name, factors)
        wanted = kind == self._kind and kind.library in execute.EAGER
        if other is None and factors is None and wanted and not call.plan.empty:
            factors = self._made()
            other = self._quicker(call.plan, backend.name, factors)
        if other is not None:
            backend, factors = other, None
        elif self._free and (other := execute.quicker_alike(call.plan, backend.name)):
            backend = other
        x = execute.solve(call, backend, checked, destination, factors)
        if library == "jax":
            check_readable(x, check)
        return x

    @property
    def rcond(self) -> Array:
        r"""For each matrix the reciprocal condition number in the 1-norm.

        .. math:: 1 / (\|A\|_1 \, \|A^{-1}\|_1)

        Near eps a solution has no correct digit; a singular matrix has 0, and nothing is raised. Rows that ``where``
        takes out do not count; a matrix without others has 1. The norm of the inverse is estimated from ten solves, as
        by LAPACK's xGTCON (Higham 1988): never more than the true one but for rounding, a tenth less or better in most
        matrices, seldom a third of it. Derivatives, of JAX and PyTorch, are those of the estimate, one more solve: of
        the number itself where the estimate is exact, as it mostly is. They are NaN in a singular matrix.
        """
        return execute.reciprocal_condition(self._prepared(), self.status)

    def slogdet(self) -> tuple[Array, Array]:
        """Sign and logarithm of the absolute value of the determinants, as `tridiag.slogdet`."""
        if known := self._recalled():
            (*_, periodic), (a, b, c, where) = known[0].options, self._matrix
            return systems.slogdet(a, b, c, where=where, axis=known[0].own_axis, periodic=periodic)
        options = self._placed(shapes_of(self._matrix))
        axis = axis_alone(self._matrix, options["axis"])
        options = {"axis": axis, "periodic": options["periodic"], "axis_name": self._kind.axis_name}
        return systems.slogdet(*self._matrix[:3], where=self._matrix[3], **options)

    def _quicker(self, plan: Plan, name: str, factors: Any) -> Backend | None:
        """What solves right sides anew in less time than a backend of that name with these factors, or some to come."""
        return execute.quicker_anew(plan, name, execute.are_saved(factors)) if self._free else None

    def _made(self) -> Any:
        """Its factors, which it was made without."""
        self._factors, _ = runner_of(self._kind.library).factor(self._prepared(), BACKENDS[self._name])
        self._recall = self._recall.with_factors()
        return self._factors

    def _is_being_traced(self) -> bool:
        """Whether this is the trace in which it was made."""
        here = self._made_in
        return here is not None and bool(here == module_of(self._kind.library).trace_at_hand())

    def _prepared(self) -> Call:
        """The call that eliminates its matrices."""
        options = self._placed(shapes_of(self._matrix))
        *abc, where = self._matrix
        options = options | {"axis": axis_alone(self._matrix, options["axis"])}
        return prepare("factor", dict(zip("abc", abc, strict=True)), where=where, **options)

    def _recalled(self) -> Any:
        """What is known of it; False where that says little: it is of another library, or a matrix is singular."""
        recall = self._recall
        if recall.settled is None:
            made = Eliminated(self._matrix, self._options, self._free, self._name, self._kind, self._factors)
            return recall.of_call(self._status, made)
        return recall.settled

    def _placed(self, shapes: Shapes) -> dict[str, Any]:
        """The options, with an axis that means now what it meant when the matrix was eliminated."""
        axis = self._options["axis"]
        if axis >= 0 and shapes != self._kind.shapes:  # 1-D matrices that `jax.vmap` has stacked since, say
            raise ValueError(
                f"axis {axis} of factor counts from the front, and the shapes of a, b, c and where have changed since, "
                f"from {self._kind.shapes} to {shapes}: factor with a negative axis, which counts from the end"
            )
        return self._options

    def _check_rank(self, full: int, rank: int) -> None:
        """Refuse right sides in which the axis that was named from the front is another one."""
        if full > rank:
            axis = self._options["axis"]
            raise ValueError(
                f"axis {axis + rank} of factor counts in a, b, c and where, which broadcast to {rank} dimension(s); "
                f"with these right sides there are {full}, and it may mean another axis: factor with axis={axis}, "
                f"which counts from the end"
            )


def factor(
    a: Array,
    b: Array,
    c: Array,
    *,
    axis: int = -1,
    backend: str = "auto",
    pivoting: bool | str = "auto",
    periodic: bool = False,
    where: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> Factorization:
    r"""Eliminate tridiagonal matrices once, to solve for many right sides later.

    .. math:: A = L U \quad\text{or}\quad P A = L U

    Parameters
    ----------
    a, b, c : array
        The diagonals, as in `tridiag.solve`; they are copied.
    axis : int
        The system axis in the broadcast shape of ``a``, ``b``, ``c`` and ``where``. Right sides with more axes have it
        where it is counted from the end: they need a negative ``axis``, and raise with another one. 1-D arrays and
        scalars alone have no such shape: they lie along ``axis`` of the right sides, as in `tridiag.solve`.
    backend, pivoting, periodic, where
        As in `tridiag.solve`, and with the same promises.
    axis_name : str or tuple of str
        Inside `jax.shard_map`, as in `tridiag.solve`: every device passes its rows, and those of right sides later.

    Returns
    -------
    Factorization
        With ``solve(d, transpose=False, out=None, overwrite_d=False, check=None)``, ``slogdet()``, ``status`` and
        ``rcond``; ``F @ x`` is the product with the matrices.

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.solve`. A singular matrix raises nothing here: it shows in ``status``.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> matrix = tridiag.factor([0.0, 1.0], [2.0, 2.0], [1.0, 0.0])
    >>> matrix.solve(np.eye(2)).round(4)
    array([[ 0.6667, -0.3333],
           [-0.3333,  0.6667]])

    Notes
    -----
    LAPACK's xGTTRF and xGTTRS. Certified systems keep (a / pivot, 1 / pivot, c / pivot), and no division is left. A
    system that needs pivoting keeps a, b, c, which refinement reads anyway, and is eliminated again: that reads fewer
    words than its factors would. Where every matrix has one right side, or long ones have so few that threads would be
    idle, or most need pivoting, arrays of NumPy and PyTorch in host memory may be solved anew by another backend, if
    none was named and that is expected to be quicker; systems that lie side by side with one right side each are solved
    anew in any case. Such matrices are factored by the first solve of more right sides; until then their rows tell the
    status, where all are dominant by a hundredth, and else an elimination does. One such matrix of up to 100,000 rows
    whose couplings decay is cut into windows of its rows, which are factored by the ninth solve of a right side, in
    the time of 4 to 14: from then on one takes half as long, and may differ from those before by rounding. JAX arrays
    on one CPU device keep factors of systems of five rows or more along the last axis under "auto", where caches hold
    these. To JAX it is a tree, so that it can be an argument of jitted functions; its leaves belong together: they may
    be mapped, sliced, permuted and stacked alike, and are not to be changed one by one.
    """
    arrays = type(a) is type(b) is type(c) is ndarray and axis_name is None
    if not arrays and compiling(a, b, c):
        options: dict[str, Any] = {"axis": axis, "pivoting": pivoting, "periodic": periodic, "where": where}
        return graph().outside(factor, a, b, c, backend=backend, **options)
    short = FACTORINGS.call if type(b) is ndarray else fast_path.of_tensors("factors", b)
    if short is not None and axis_name is None:
        found = short(a, b, c, where, axis, backend, pivoting, periodic)
        if found is not None and len(found) == 2:
            return Factorization.of(found)
        if found is not None:
            matrix, placed, name, kind, factors, status = found
            options = {"axis": placed, "pivoting": pivoting, "periodic": periodic}
            return Factorization(matrix, options, name, kind, factors, status, backend == "auto")
    arguments = {"a": a, "b": b, "c": c}
    library, _ = taking(tuple(arguments), *map(type, (a, b, c, where)))  # refuses what has no axes to be counted
    for name, x in arguments.items():
        check_sequence(name, x, "numpy", library)
    own_axis = axis_alone((a, b, c, where), axis)
    traced = library == "jax" and any(map(module_of(library).is_traced, (a, b, c, where)))
    asked = UNASKED if traced else backend  # in a trace a plan has a choice for each platform, and factors one backend
    options = {"pivoting": pivoting, "periodic": periodic, "backend": asked}
    call = rows_or_whole("factor", arguments, where, options | {"axis": own_axis}, axis_name)
    if library == "jax" and call.traced and not traced:  # by a trace in which NumPy arrays became JAX arrays
        traced, asked = True, UNASKED
        options["backend"] = asked
        call = rows_or_whole("factor", arguments, where, options | {"axis": own_axis}, axis_name)
    entry = call.plan.backend or choose(call.problem, backend).backend
    one = is_one((a, b, c, where))
    placed = check_axis(axis) if one else call.form.axis - len(call.form.shape)
    options = {"axis": placed, "pivoting": pivoting, "periodic": periodic}
    with call.place():
        matrix = own(call, (a, b, c, where))
        facts = call.problem.dtype, call.form.n, shapes_of(matrix), not one and axis >= 0, axis_name
        kind = Kind(call.library, *facts)
        if 0 in call.form.matrix_shape:
            ops = call.module().Operations
            status = ops.zero_status(ops.full(call.form.matrix_batch, 0, call.matrix[1]))
            return Factorization(matrix, options, entry.name, kind, None, status)
        given = dict(zip("abc", matrix, strict=False))
        owned = rows_or_whole("factor", given, matrix[3], options | {"axis": own_axis, "backend": asked}, axis_name)
        factors, status = execute.factor(owned, entry, backend == "auto")
        if axis_name is not None:
            status = split.on_all(owned.form, axis_name, status)
        made = Factorization(matrix, options, entry.name, kind, factors, status, backend == "auto")
        kept = getattr(factors, "tiles", None) is not None
        made._made_in = call.module().trace_at_hand() if traced and kept else None
        return made


def rows_or_whole(verb: str, arguments: dict[str, Any], where: Any, options: dict[str, Any], axis_name: Any) -> Call:
    """The prepared call, of whole systems or of the rows that a device has."""
    if axis_name is None:
        return prepare(verb, arguments, where=where, **options)
    return split.system(verb, arguments, where, None, options, axis_name)


def refuse_to_perturb(singular: Any) -> None:
    if not isinstance(singular, str) or singular != "perturb":
        raise ValueError(f"singular is {singular!r}; wanted 'nan'")
    raise ValueError(
        "singular='perturb' changes matrices that are singular, and factors are of the matrices as they are; use "
        "tridiag.solve(a, b, c, d, singular='perturb')"
    )


def shapes_of(matrix: tuple[Any, ...]) -> Shapes:
    return tuple([tuple(getattr(x, "shape", ())) for x in matrix])


def own(call: Call, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the caller's arrays, at their own size; JAX arrays are immutable."""
    if call.library == "jax":
        return tuple(call.module().own(x) for x in given)
    if call.library == "torch":
        return tuple(call.module().own(x) for x in given)
    if call.library == "cupy":
        return tuple(x.copy() if hasattr(x, "copy") else copy.copy(x) for x in given)
    return tuple(x if x is None or np.isscalar(x) else np.array(x) for x in given)
