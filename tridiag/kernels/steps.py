"""Functions of a kernel that call each other through a table, each compiled once.

Numba compiles a function together with all that it calls, and finishes the whole again at every level of calls: a deep
kernel costs many times its length. A step is compiled alone; the outermost function links all and fills the table.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.vector import I64, Library


class Steps(Library):
    """Functions step(zero, integer ...) in nopython code, called as step(zero, (integer, ...)); they return an integer.

    A condition is returned as 0 or 1, nothing as 0.
    """

    def add_step(self, body: Any) -> Any:
        return self.add(body.py_func.__name__, body)

    def definition(self) -> Any:
        """An intrinsic define(zero), for the outermost function of one kernel, behind what calls steps."""

        @intrinsic
        def define(typing: Any, zero: Any) -> Any:
            compiled: dict[str, Any] = {}
            while pending := [name for name in self.arities if name not in compiled]:  # a step may call others
                for name in pending:
                    body: Any = self.bodies[name]
                    arguments = zero, *[types.int64] * self.arities[name]
                    body.compile(arguments)
                    compiled[name] = body.overloads[arguments]

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                for place, name in enumerate(self.bodies):
                    if name in compiled:
                        address = self.link(context, builder.module, zero, name, compiled[name])
                        builder.store(builder.ptrtoint(address, I64), self.slot(builder, zero, place))
                return context.get_dummy_value()

            return types.void(zero), generate

        return define

    def link(self, context: Any, module: Any, zero: Any, name: str, compiled: Any) -> Any:
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
