"""Functions of a kernel that call each other through variables, each compiled once.

Numba compiles a function together with all that it calls, and finishes the whole again at every level of calls: a deep
kernel costs many times its length. A step is compiled alone; the outermost function links those that are called.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.vector import I64


class Steps(Library):
    """Functions step(zero, integer ...) in nopython code, called as step(zero, (integer, ...)); they return an integer.

    A condition is returned as 0 or 1, nothing as 0.
    """

    def add_step(self, body: Any) -> Any:
        return self.add(body.py_func.__name__, body)

    def compiled(self, name: str, zero: Any) -> Any:
        body: Any = self.bodies[name]
        arguments = zero, *(integer_or_record(kind) for kind in self.kinds[name])
        body.compile(arguments)
        return body.overloads[arguments]

    def function(self, context: Any, module: Any, name: str, zero: Any, compiled: Any) -> Any:
        """A C function around a compiled step."""
        context.active_code_library.add_linking_library(compiled.library)
        function = ir.Function(module, self.kind(name), f"tridiag_{self.name}_{name}_{zero}")
        function.linkage = "internal"
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        values = [context.get_constant_null(zero), *function.args]
        _, result = context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, values)
        kind = compiled.signature.return_type
        builder.ret(ir.Constant(I64, 0) if kind == types.none else context.cast(builder, result, kind, types.int64))
        return function


def integer_or_record(kind: Any) -> Any:
    """Of an argument that a step takes: a condition is an integer."""
    return types.int64 if isinstance(kind, types.Boolean | types.Integer) else kind
