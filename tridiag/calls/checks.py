"""Options of the verbs: flags, axes and masks."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tridiag.libraries.arrays import (
    Entry,
    dtype_name,
    library_of,
    module_of,
)

BOOLEANS = (bool, np.bool_)


def refuse_traced(name: str, option: Any) -> None:
    """Refuse an option that a transformation of JAX has made an argument of the program."""
    if library_of(option) == "jax" and module_of("jax").is_traced(option):
        raise TypeError(
            f"{name} is traced by JAX ({type(option).__name__}), and decides what the program does; wanted a value "
            f"known when it is made: jax.jit(..., static_argnames={name!r}), or a function that holds {name}"
        )


def check_promise(pivoting: Any) -> bool | str:
    if isinstance(pivoting, str) and pivoting == "auto":
        return pivoting
    if not isinstance(pivoting, BOOLEANS):
        refuse_traced("pivoting", pivoting)
        raise ValueError(f"pivoting is {pivoting!r}; wanted False, True or 'auto'")
    return bool(pivoting)


def check_flag(name: str, flag: Any, wanted: str = "True or False") -> None:
    if not isinstance(flag, BOOLEANS):
        refuse_traced(name, flag)
        raise TypeError(f"{name} is {flag!r}; wanted {wanted}")


def check_check(check: Any) -> None:
    """Whether singular systems raise; None: where values are at hand."""
    if check is not None:
        check_flag("check", check, "True, False or None")


def refuse_check() -> NoReturn:
    """Refuse to look for singular systems in a trace."""
    raise ValueError(
        "check=True reads values, which a trace does not have; use tridiag.factor(...).status inside the trace, "
        "or check=None to get NaN in singular systems"
    )


def check_readable(x: Any, check: Any) -> None:
    """Refuse to look at a JAX result that has no values: in a trace that of arrays has none either."""
    if check and module_of("jax").is_traced(x):
        refuse_check()


def perturbs(singular: Any, pivoting: Any, check: Any, axis_name: Any) -> bool:
    """Whether singular matrices are to be perturbed: refuses what cannot go with that."""
    if not isinstance(singular, str) or singular not in ("nan", "perturb"):
        raise ValueError(f"singular is {singular!r}; wanted 'nan' or 'perturb'")
    if singular == "nan":
        return False
    check_check(check)
    if pivoting is False:
        raise ValueError(
            "singular='perturb' is for elimination with partial pivoting, which tells what is singular, and pivoting "
            "is False; leave one of them out"
        )
    if axis_name is not None:
        raise ValueError(
            "singular='perturb' looks at whole systems, and with axis_name each device has some of their rows; leave "
            "one of them out, or pass sharded arrays outside of jax.shard_map"
        )
    return True


def whole_number(x: Any) -> int | None:
    """An integer of any library, or an array that is one; None: it is something else."""
    if isinstance(x, BOOLEANS) or not hasattr(x, "__index__"):
        return None
    try:
        return int(x.__index__())
    except (TypeError, RuntimeError):  # an array of many numbers, or of another dtype
        return None


def shown(x: Any) -> str:
    """A value, or the shape of an array."""
    shape = tuple(getattr(x, "shape", ()))
    return f"an array of shape {shape}" if shape else repr(x)


def check_axis(axis: Any, name: str = "axis") -> int:
    refuse_traced(name, axis)
    found = whole_number(axis)
    if found is None:
        raise TypeError(f"{name} is {shown(axis)}; wanted one integer")
    return found


def check_count(name: str, count: Any, least: int, wanted: str) -> int:
    """A whole number of any library; ``wanted``: what it counts, in words."""
    refuse_traced(name, count)
    found = whole_number(count)
    if found is None or found < least:
        kind = ", as an integer" if found is None else ""
        raise ValueError(f"{name} is {shown(count)}; wanted {wanted}, {least} or more{kind}")
    return found


def check_mask(entry: Entry) -> None:
    if dtype_name(entry[0]) != "bool":
        if 0 in entry[1]:
            raise TypeError(
                f"where has shape {tuple(entry[1])}, without an entry; wanted booleans, one for each row, True to keep "
                "it, or None, which keeps all"
            )
        raise TypeError(
            f"where has dtype {dtype_name(entry[0])}; wanted booleans, True in the rows to keep: pass where != 0"
        )
