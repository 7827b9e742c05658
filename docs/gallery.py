"""Run the examples and keep what they print and draw for their pages: `python docs/gallery.py [name ...]`."""

import os
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).parent / "gallery"
EXAMPLES = Path(__file__).parents[1] / "examples"
WIDTH = "92"  # what fits the column of a page


LAUNCHED = {"mpi_channel": (str(Path(sys.executable).with_name("mpiexec")), "-n", "4")}  # in several processes


def names() -> list[str]:
    """The examples that run, each with a page of its own; other files are their parts."""
    return sorted(path.stem for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text())


def run(name: str) -> None:
    """Write NAME.txt and NAME.png beside NAME.rst."""
    command = [*LAUNCHED.get(name, ()), sys.executable, EXAMPLES / f"{name}.py", "--output", f"{name}.png"]
    done = subprocess.run(command, cwd=PAGES, env=os.environ | {"COLUMNS": WIDTH}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout}{done.stderr}")
    (PAGES / f"{name}.txt").write_text(without_progress(done.stdout))


def without_progress(text: str) -> str:
    """What was printed but for progress bars and blanks at the ends of lines."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not line.endswith("0:00:00")).strip("\n") + "\n"


def main(wanted: list[str]) -> None:
    if unknown := set(wanted) - set(names()):
        raise SystemExit(f"there is no example {', '.join(sorted(unknown))}; the names are {', '.join(names())}")
    for name in wanted or names():
        run(name)
        print(f"{name}: written to {PAGES}")


if __name__ == "__main__":
    main(sys.argv[1:])
