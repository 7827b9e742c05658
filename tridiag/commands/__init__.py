"""The command line, ``python -m tridiag``: a module of this folder for each command.

It has a docstring, ``add_arguments(parser)`` and ``run(options) -> int``, which returns the exit status.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from types import ModuleType

COMMANDS = ("info", "explain", "tune", "bench")
NO_RICH = 'python -m tridiag needs rich, which is not installed: pip install "batched-tridiag[cli]"'


def module_of(command: str) -> ModuleType:
    return importlib.import_module(f"tridiag.commands.{command}")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what is wrong with its arguments is one sentence."""
    parser = argparse.ArgumentParser(prog="python -m tridiag", description="Many tridiagonal systems at once.")
    if importlib.util.find_spec("rich") is None:
        parser.exit(2, NO_RICH + "\n")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    arguments = sys.argv[1:] if arguments is None else arguments
    for name in arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS:
        module = module_of(name)
        summary = (module.__doc__ or "").partition("\n")[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    try:
        return int(module_of(options.command).run(options))
    except (ImportError, ValueError, TypeError, OSError) as error:
        parser.exit(2, f"python -m tridiag {options.command}: {error}\n")
