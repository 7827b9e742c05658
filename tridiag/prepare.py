"""From the caller's arguments to systems in the normal form: checked, promoted, of one rank, without a copy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tridiag.arrays import SUPPORTED, common_library, dtype_name, is_real, refuse_dtype, working_dtype
from tridiag.backends import Problem
from tridiag.rows import Matrix
from tridiag.shapes import Form, align, broadcast

COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}
REAL_OF = {"complex64": "float32", "complex128": "float64"}


class Call(NamedTuple):
    """One call of a verb, ready to run."""

    library: str
    matrix: Matrix
    d: Any
    form: Form
    result_dtype: str
    problem: Problem
    traced: bool

    def module(self) -> ModuleType:
        return importlib.import_module(f"tridiag.libraries.{self.library}")


def prepare(
    verb: str,
    arguments: Mapping[str, Any],
    *,
    axis: int = -1,
    pivoting: bool | str = "auto",
    periodic: bool = False,
    where: Any = None,
    transpose: bool = False,
    overwrite_d: bool = False,
) -> Call:
    """Check everything that can be checked before any work is done. ``arguments`` are a, b, c and perhaps d."""
    pivoting = check_promise(pivoting)
    for name, flag in (("periodic", periodic), ("transpose", transpose), ("overwrite_d", overwrite_d)):
        check_flag(name, flag)
    library = common_library({**arguments, "where": where})
    module = importlib.import_module(f"tridiag.libraries.{library}")
    given = {name: module.convert(name, x) for name, x in arguments.items()}
    shapes = {name: tuple(np.shape(x)) for name, x in given.items()}
    if where is not None:
        where = check_mask(module.boolean(where))
        shapes["where"] = tuple(where.shape)
    lifted, axis = align(shapes, check_axis(axis))
    device, traced = module.device(given.values()), module.traced([*given.values(), where])
    dtype = module.result_dtype(list(given.values()))
    if working_dtype(dtype) not in SUPPORTED:
        refuse_dtype("the result", dtype)
    dtypes = entry_dtypes(given, working_dtype(dtype))
    cast = {name: module.Operations.reshape(module.cast(x, dtypes[name]), lifted[name]) for name, x in given.items()}
    if where is not None:
        where = module.Operations.reshape(where, lifted["where"])
    shape = broadcast(lifted, shapes)
    matrix_shape = broadcast({name: s for name, s in lifted.items() if name != "d"}, shapes)
    # a matrix that is constant along the system axis still has n rows
    matrix_shape = (*matrix_shape[:axis], shape[axis], *matrix_shape[axis + 1 :])
    if periodic and 0 < shape[axis] < 3:
        raise ValueError(
            f"periodic=True needs at least 3 rows, and the system has {shape[axis]}; write it out or solve it dense"
        )
    form = Form(shape, matrix_shape, axis, bool(periodic), bool(transpose), pivoting, bool(overwrite_d))
    problem = Problem(verb, library, device, dtypes["b"], shape, axis, pivoting, form.periodic)
    matrix = (cast["a"], cast["b"], cast["c"], where)
    return Call(library, matrix, cast.get("d"), form, dtype, problem, traced)


def check_promise(pivoting: Any) -> bool | str:
    if isinstance(pivoting, str) and pivoting == "auto":
        return pivoting
    if not isinstance(pivoting, bool | np.bool_):
        raise ValueError(f"pivoting is {pivoting!r}; wanted False, True or 'auto'")
    return bool(pivoting)


def check_flag(name: str, flag: Any) -> None:
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} is {flag!r}; wanted True or False")


def check_axis(axis: Any) -> int:
    try:
        return int(axis.__index__())
    except AttributeError:
        raise TypeError(f"axis is {axis!r}; wanted one integer") from None


def check_mask(where: Any) -> Any:
    if dtype_name(where.dtype) != "bool":
        raise TypeError(
            f"where has dtype {dtype_name(where.dtype)}; wanted booleans, True in the rows to keep: pass where != 0"
        )
    return where


def entry_dtypes(given: Mapping[str, Any], dtype: str) -> dict[str, str]:
    """All entries in one dtype, but a real matrix with a complex right side stays real."""
    dtypes = dict.fromkeys(given, dtype)
    if not is_real(dtype) and not any(is_complex(given[name]) for name in "abc"):
        dtypes.update(dict.fromkeys("abc", REAL_OF[dtype]))
    return dtypes


def is_complex(x: Any) -> bool:
    return isinstance(x, complex) or dtype_name(getattr(x, "dtype", "")).startswith("complex")
