"""Sphinx configuration: `make docs`."""

import tridiag
from tridiag.backends import BACKENDS

project = "tridiag"
author = "the tridiag developers"
copyright = "the tridiag developers"
version = release = tridiag.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"tridiag {release}"
autodoc_typehints = "none"


def fill_in_backends(app, page, source):
    """Put the package's own table of backends where a page says {{ backends }}."""
    cells = [("name", "algorithm", "verbs", "arrays", "pivoting", "error of logcumsumexp (units)")]
    for line in BACKENDS.values():
        facts = (", ".join(map(str, fact)) for fact in (line.verbs, line.arrays, line.pivoting))
        units = "" if line.units is None else f"{line.units:g}"
        cells.append((f"``{line.name}``", line.algorithm, *facts, units))
    rows = ["   * - " + "\n     - ".join(row) for row in cells]
    table = "\n".join([".. list-table::", "   :header-rows: 1", "", *rows])
    source[0] = source[0].replace("{{ backends }}", table)


def setup(app):
    app.connect("source-read", fill_in_backends)
