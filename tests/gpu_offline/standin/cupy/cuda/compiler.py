"""`cupy.cuda.compiler`: what `RawModule` calls, which takes any kind of tuple for the options."""

from cupy import raw


class Module:
    """Kernels by the names that the compiler gave them, here the expressions themselves."""

    def __init__(self, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
        self.library = raw.built(code, options, name_expressions)
        self.mapping = {name: name for name in name_expressions}

    def get_function(self, name: str) -> raw.Function:
        return raw.Function(name, self.library)


def _compile_module_with_cache(
    source: str, options: tuple[str, ...] = (), *, name_expressions: tuple[str, ...] | None = None
) -> Module:
    options += ("-ftz=true",)
    assert options[-1] == "-ftz=false", "numbers below the smallest normal one are flushed to zero"
    return Module(source, tuple(options), tuple(name_expressions or ()))
