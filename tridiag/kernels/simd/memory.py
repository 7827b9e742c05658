"""Raw memory, atomics and C functions for nopython code: module-level intrinsics, so that kernels stay cacheable."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

I64 = ir.IntType(64)


@intrinsic
def word(typing, address):
    """The int64 at an address."""

    def generate(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], I64.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def set_word(typing, address, value):
    def generate(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], I64.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def half_word(typing, address):
    """The int32 at an address."""

    def generate(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()))

    return types.int32(types.int64), generate


@intrinsic
def set_half_word(typing, address, value):
    def generate(context, builder, signature, args):
        builder.store(args[1], builder.inttoptr(args[0], ir.IntType(32).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


@intrinsic
def set_byte(typing, address, value):
    def generate(context, builder, signature, args):
        byte = ir.IntType(8)
        builder.store(builder.trunc(args[1], byte), builder.inttoptr(args[0], byte.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def fetch_add(typing, address, value):
    """Atomic: the int64 at an address, and add to it."""

    def generate(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def flush(typing):
    """Stores that went past the caches are seen by all threads before any store that follows."""

    def generate(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def swap(typing, address, old, new):
    """Atomic: whether the int64 at an address was the old one; it is the new one then."""

    def generate(context, builder, signature, args):
        at = builder.inttoptr(args[0], I64.as_pointer())
        return builder.extract_value(builder.cmpxchg(at, args[1], args[2], "seq_cst", "seq_cst"), 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


@intrinsic
def pointer(typing, address, like):
    """The address as a pointer to the type of ``like``."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(like).as_pointer())

    return types.CPointer(like)(types.int64, like), generate


@intrinsic
def load(typing, address, like):
    """The value of the type of ``like`` at an address."""

    def generate(context, builder, signature, args):
        value = builder.load(builder.inttoptr(args[0], context.get_value_type(like).as_pointer()))
        value.align = context.get_abi_sizeof(context.get_value_type(getattr(like, "underlying_float", like)))
        return value

    return like(types.int64, like), generate


@intrinsic
def store(typing, address, value):
    def generate(context, builder, signature, args):
        done = builder.store(args[1], builder.inttoptr(args[0], context.get_value_type(value).as_pointer()))
        done.align = context.get_abi_sizeof(context.get_value_type(getattr(value, "underlying_float", value)))
        return context.get_dummy_value()

    return types.void(types.int64, value), generate


@intrinsic
def variable(typing, value):
    """An integer, of whose value compilers know nothing: no function is compiled for it alone, no loop unrolled."""

    def generate(context, builder, signature, args):
        return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [args[0]], False)

    return types.int64(types.int64), generate


def c_function(body, name, arity=1, result=types.void, first=types.int64):
    """An intrinsic: the address of a C function of integers, in the caller's module, that calls body(*integers, zero).

    The body has the ``first`` of them as the address of a record, where that is its type.

    It returns the integer that the body returns, or 0. What Numba has made of the body is ``compiled(zero)``.
    """

    def signature_for(like):
        return result(*[first, *[types.int64] * (arity - 1)][:arity], like)

    def compiled_for(like):
        return body.get_compile_result(signature_for(like))

    @intrinsic
    def address(typing, like):
        sig, compiled = signature_for(like), compiled_for(like)

        def generate(context, builder, signature, args):
            module, symbol = builder.module, f"{name}_{like}"
            function = module.globals.get(symbol)
            if function is None:
                function = ir.Function(module, ir.FunctionType(I64, [I64] * arity), symbol)
                function.linkage = "internal"
                inner = ir.IRBuilder(function.append_basic_block("entry"))
                context.active_code_library.add_linking_library(compiled.library)
                values = [*function.args, context.get_constant_null(like)]
                _, found = context.call_internal_no_propagate(inner, compiled.fndesc, sig, values)
                inner.ret(ir.Constant(I64, 0) if result == types.void else found)
            return builder.ptrtoint(function, I64)

        return types.int64(like), generate

    address.compiled = compiled_for
    return address


def shared_words(name, count):
    """An intrinsic: the address of so many words, at first 0, that all functions of a module share under a name."""

    @intrinsic
    def address(typing):
        def generate(context, builder, signature, args):
            kind = ir.ArrayType(I64, count)
            words = builder.module.globals.get(name)
            if words is None:
                words = ir.GlobalVariable(builder.module, kind, name)
                words.linkage, words.initializer = "common", ir.Constant(kind, None)
            return builder.ptrtoint(words, I64)

        return types.int64(), generate

    return address


@intrinsic
def call(typing, function, integers):
    """Call a C function of integers at an address; as a thread would, where it takes the address of a job."""

    def generate(context, builder, signature, args):
        count = len(signature.args[1])
        kind = ir.FunctionType(I64, [I64] * count).as_pointer()
        values = [builder.extract_value(args[1], k) for k in range(count)]
        return builder.call(builder.inttoptr(args[0], kind), values)

    return types.int64(types.int64, integers), generate


malloc = types.ExternalFunction("malloc", types.int64(types.uint64))
free = types.ExternalFunction("free", types.void(types.int64))
