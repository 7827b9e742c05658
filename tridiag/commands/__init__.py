"""The command line, ``python -m tridiag``: a module of this folder for each command.

It has a docstring, ``add_arguments(parser)`` and ``run(options) -> int``, which returns the exit status; one that keeps
something on the disk says in ``KEPT`` what is left of it where it is interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType
from typing import NoReturn

from tridiag._version import __version__
from tridiag.backends import how_to_install
from tridiag.kernels.runtime import keyboard

COMMANDS = ("info", "explain", "tune", "compile", "bench")
INTERRUPTED = 130  # as shells count a process that Ctrl-C has ended
NOTHING = "nothing is kept"
UNREAD = 141  # ... and one that SIGPIPE has
NO_RICH = f"python -m tridiag needs rich, which is not installed: {how_to_install('cli')}"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and where all that would be right is told."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help tells all arguments\n")


def module_of(command: str) -> ModuleType:
    return importlib.import_module(f"tridiag.commands.{command}")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what is wrong with its arguments is one sentence."""
    parser = Parser(prog="python -m tridiag", description="Many tridiagonal systems at once.")
    arguments = sys.argv[1:] if arguments is None else arguments
    named = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else []
    prog = " ".join([parser.prog, *named])
    for closed in [name for name in ("stdout", "stderr") if getattr(sys, name) is None]:  # by who calls, with >&-
        setattr(sys, closed, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    try:
        return run(parser, arguments, named)
    except BrokenPipeError:  # who read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (ImportError, ValueError, TypeError, OSError) as error:
        parser.exit(2, f"{prog}: {error}\n")
    except KeyboardInterrupt:
        exec("")  # CPython remembers a Ctrl-C in text that exec ran, and would end by the signal, not with this status
        kept = getattr(module_of(named[0]), "KEPT", NOTHING) if named else NOTHING
        parser.exit(INTERRUPTED, f"{prog}: interrupted; {kept}\n")


def joined(arguments: list[str]) -> list[str]:
    """With values that begin with a minus sign, as -1,5, behind the names of their options: no options themselves."""
    found: list[str] = []
    for text in arguments:
        if found and found[-1].startswith("--") and "=" not in found[-1] and text[:1] == "-" and text[1:2].isdecimal():
            found[-1] += f"={text}"
        else:
            found.append(text)
    return found


def run(parser: Parser, arguments: list[str], named: list[str]) -> int:
    """``named``: the command, if one comes first; of others only the summaries are shown."""
    if importlib.util.find_spec("rich") is None:
        parser.exit(2, NO_RICH + "\n")
    parser.add_argument("--version", action="version", version=f"tridiag {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="|".join(COMMANDS))
    for name in named or COMMANDS:
        module = module_of(name)
        summary = (module.__doc__ or "").partition("\n")[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    if not named and arguments and not arguments[0].startswith("-"):
        meant = difflib.get_close_matches(arguments[0].lower(), COMMANDS, 1)
        question = f"; did you mean {meant[0]}?" if meant else "."
        parser.error(f"there is no command {arguments[0]!r}{question} The commands are {', '.join(COMMANDS)}")
    options, unknown = parser.parse_known_args(joined(arguments))
    if unknown:
        whose = commands.choices.get(options.command, parser)
        known = re.findall(r"--[a-z-]+", whose.format_help())
        meant = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
        whose.error(f"there is no argument {' '.join(unknown)}{f'; did you mean {meant[0]}?' if meant else ''}")
    if options.command is None:
        parser.print_help()
        return 0
    with keyboard.interruptible():
        status = int(module_of(options.command).run(options))
    sys.stdout.flush()
    return status
