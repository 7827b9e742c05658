"""How Numba compiles the functions of kernels: the decorators `compiled` and `inlined`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder

# of Numba's passes, those for what no function of a kernel has: context managers, closures, tuples of mixed types whose
# loops are unrolled, arguments that must be literals, overloads that are inlined, array expressions; and the check for
# what it cannot compile
LEFT_OUT = {
    "with_lifting", "inline_closure_likes", "make_function_op_code_to_jit_function", "literal_unroll", "find_literally",
    "inline_overloads", "nopython_rewrites", "nopython_supported_feature_validation",
}  # fmt: skip


class FewerPasses(CompilerBase):
    """Numba's compiler without passes that find nothing to do, which take a tenth of the time."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(each, told) for each, told in passes.passes if each._name not in LEFT_OUT]
        passes.finalize()
        return [passes]


OPTIONS = {
    "error_model": "numpy",
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": FewerPasses,
}


def compiled(function: Callable[..., Any]) -> Any:
    """For calls by other compiled functions; once for integers, whether a caller has them as constants or not.

    Numba takes each constant for a type of its own, and would compile a function that is called with three constants
    three times. What is small is inlined by LLVM, which sees the constants again.
    """
    return of_whole_types(njit(**OPTIONS)(function))


def inlined(function: Callable[..., Any]) -> Any:
    """A large function that is called once: its statements stand in the caller, and it is not compiled by itself."""
    return of_whole_types(njit(**OPTIONS, inline="always")(function))


def of_whole_types(dispatcher: Any) -> Any:
    """The dispatcher, which finds what it compiled by the types of its arguments without their values."""
    found = dispatcher.get_call_template

    def template(args: Any, keywords: Any) -> Any:
        return found(tuple(map(types.unliteral, args)), {name: types.unliteral(x) for name, x in keywords.items()})

    dispatcher.get_call_template = template
    return dispatcher
