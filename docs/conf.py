"""Sphinx configuration: `make docs`."""

import json
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import tridiag
from tridiag.backends import BACKENDS

project = "tridiag"
author = "the tridiag developers"
copyright = "the tridiag developers"
version = release = tridiag.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"tridiag {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
autodoc_typehints = "none"
nitpicky = True
# What the docstrings say of types in words, and classes of other packages.
WORDS = r".*\barrays?\b.*|\"auto\"|carry|function|pytree|ys|BackendList|Explanation"
WORDS += r"|.*DataArray.*|number|booleans|hashable|(or )?a tuple|of them|them|logabsdet|sign"
WORDS += r"|numpy\.linalg\.LinAlgError|pathlib\.Path"
nitpick_ignore_regex = [("py:class", WORDS), ("py:obj", r"(?!tridiag\b).*")]
default_role = "py:obj"  # `tridiag.solve` in a docstring is a link

# The cases of benchmarks/accuracy.py.
MATRICES = {
    "dominant": "diagonally dominant, from strictly to just so",
    "definite": "positive definite, not dominant",
    "diffusion": "implicit diffusion, coefficients over 8 decades",
    "uniform": "uniform(-1, 1)",
    "zero diag": "zero diagonal",
    "1e-8 diag": "diagonal of 1e-8",
    "rows": "uniform(-1, 1), rows scaled over 12 decades",
    "1e-50": "couplings of 1e-50 (1e-30 in single precision)",
    "condition": "indefinite, condition up to 1e-3/eps",
    "beyond": "the same, from 1e-3/eps to 0.1/eps",
}
RESULTS = Path(__file__).parents[1] / "benchmarks/results"


def fill_in_backends(app, page, source):
    """Put the table of backends where a page says {{ backends }}, and their errors where it says {{ units }}."""
    cells, units = (
        [("name", "algorithm", "verbs", "arrays", "devices", "pivoting")],
        [("name", "units in the last place")],
    )
    for line in BACKENDS.values():
        other = (f"on {device}: {', '.join(map(str, kept))}" for device, kept in line.pivoting_on)
        pivoting = "; ".join((", ".join(map(str, line.pivoting)), *other))
        facts = (*(", ".join(fact) for fact in (line.verbs, line.arrays, line.devices)), pivoting)
        cells.append((f"``{line.name}``", line.algorithm, *facts))
        if line.units is not None:
            units.append((f"``{line.name}``", f"{line.units:g}"))
    source[0] = source[0].replace("{{ backends }}", table(cells)).replace("{{ units }}", table(units))


def table(cells):
    rows = ["   * - " + "\n     - ".join(row) for row in cells]
    return "\n".join([".. list-table::", "   :header-rows: 1", "", *rows])


def fill_in_errors(app, page, source):
    """Put what `benchmarks/accuracy.py` measured where a page says {{ errors }}."""
    if "{{ errors }}" not in source[0]:
        return
    nearest, lapack = {}, {}
    for row in json.loads((RESULTS / "accuracy.json").read_text())["rows"]:
        if row["promise"] == "auto":
            nearest[row["case"]] = max(nearest.get(row["case"], row), row, key=lambda row: row["backward"] / row["bar"])
            lapack[row["case"]] = max(lapack.get(row["case"], 0), row["gtsv"])
    cells = [("matrices", "nearest to its bar", "its bar", "gtsv")]
    for case, row in nearest.items():
        cells.append((MATRICES[case], *(f"{value:.2g}" for value in (row["backward"], row["bar"], lapack[case]))))
    source[0] = source[0].replace("{{ errors }}", table(cells))


def fill_in_figures(app, page, source):
    """Put a measured median where a page says {{ file line: figure }}, so that no figure is older than its record."""
    source[0] = re.sub(r"\{\{ (\w+/\w+) (\S+): (.+?) \}\}", lambda found: median(*found.groups()), source[0])


def median(file, line, figure):
    record = json.loads((RESULTS / f"{file}.json").read_text())
    (found,) = (row for row in record["lines"] if row["name"] == line)
    (value,) = (row["median"] for row in found["figures"] if row["figure"] == figure)
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def formula_in_a_line(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def formula_in_a_block(writer, node):
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.connect("source-read", fill_in_backends)
    app.connect("source-read", fill_in_errors)
    app.connect("source-read", fill_in_figures)
    app.add_html_math_renderer("mathml", (formula_in_a_line, None), (formula_in_a_block, None))
