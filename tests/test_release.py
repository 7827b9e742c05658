"""That what a release says of itself is said once, or everywhere alike, and that a target tests what it claims."""

import configparser
import re
from pathlib import Path

import pytest

import tridiag

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
RECIPE = (ROOT / "recipe/recipe.yaml").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = (ROOT / ".github/workflows/test.yml").read_text()
CI = (ROOT / ".ci/run").read_text()
CLASSIFIERS = SETUP["metadata"]["classifiers"].split("\n")[1:]
CLAIMS = {  # and what tests them: a target, of CI or of a workflow
    "Operating System :: POSIX :: Linux": "test",
    "Programming Language :: Python :: 3": "test",
    "Programming Language :: Python :: 3 :: Only": "test",
    "Programming Language :: Python :: 3.11": "test-matrix",
    "Programming Language :: Python :: 3.12": "test-matrix",
    "Programming Language :: Python :: 3.13": "test-matrix",
    "Programming Language :: Python :: 3.14": "test-matrix",
    "Programming Language :: Python :: Implementation :: CPython": "test",
    "Typing :: Typed": "types",
}
OTHERS = re.compile("Development Status|Intended Audience|Topic")  # claim nothing that can be tested
AT_CONDA_FORGE = {"torch": "pytorch"}  # what is called otherwise there


def listed(after: str) -> list[str]:
    """The entries of a list of the recipe."""
    block = re.search(rf"^( *){after}:\n((?:\1  ?-? .*\n|\1 +- .*\n)+)", RECIPE, re.MULTILINE)
    assert block, after
    return re.findall(r"- (.*)", block[2])


def requirements(text: str) -> set[str]:
    return {line.replace(">=", " >=") for line in text.split("\n") if line}


def test_every_claim_has_a_target() -> None:
    """Which CI or a workflow runs; of Python, with that version."""
    assert {claim for claim in CLASSIFIERS if not OTHERS.match(claim)} == set(CLAIMS)
    for claim, target in CLAIMS.items():
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        assert re.search(rf"for target in.* {target}\b", CI) or f"make {target}" in WORKFLOW
        if version := re.search(r"3\.\d+$", claim):
            assert f"python{version[0]}:" in MAKEFILE and f'python: "{version[0]}"' in WORKFLOW


def test_the_oldest_python_is_claimed_alike() -> None:
    oldest = min((claim.rpartition(" ")[2] for claim in CLAIMS if re.search(r"3\.\d+$", claim)), key=len)
    assert SETUP["options"]["python_requires"] == f">={oldest}" and f'python_min: "{oldest}"' in RECIPE


def test_the_version_is_the_same_everywhere() -> None:
    for file, text in (("recipe/recipe.yaml", 'version: "{}"\n'), ("CITATION.cff", "\nversion: {}\n")):
        assert text.format(tridiag.__version__) in (ROOT / file).read_text(), file


def test_the_recipe_needs_what_the_package_needs() -> None:
    wanted = requirements(SETUP["options"]["install_requires"])
    assert set(listed("run")) == {"python >=${{ python_min }}", *wanted}
    extras = SETUP["options.extras_require"]
    floors = set().union(*(requirements(extras[name]) for name in ("jax", "torch", "scipy")))
    renamed = {" ".join(AT_CONDA_FORGE.get(word, word) for word in line.split(" ")) for line in floors}
    assert set(listed("run_constraints")) == renamed
    build = re.search(r'requires = \["(.*)"\]', (ROOT / "pyproject.toml").read_text())
    assert build and build[1].replace(">=", " >=") in listed("host")
    for key, field in (("summary", "description"), ("license", "license_expression")):
        assert f"  {key}: {SETUP['metadata'][field]}\n" in RECIPE


def test_the_oldest_releases_that_are_promised_are_tested() -> None:
    """All but PyTorch's, of which the package index has no small build: docs/install.rst says so."""
    extras = SETUP["options.extras_require"]
    promised = set().union(
        requirements(SETUP["options"]["install_requires"]),
        *(requirements(extras[x]) for x in ("jax", "scipy", "dask", "xarray")),
    )
    pinned = dict(line.split("==") for line in (ROOT / "floors.txt").read_text().split("\n") if "==" in line)
    for line in promised:
        name, _, floor = line.partition(" >=")
        assert f"{pinned[name.partition('[')[0]]}.".startswith(f"{floor}."), line


@pytest.mark.parametrize("file", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", ".readthedocs.yaml", "LICENSE"])
def test_what_a_repository_has(file: str) -> None:
    assert (ROOT / file).stat().st_size > 0


def test_every_target_is_phony() -> None:
    """Else a file of that name would keep it from running."""
    told = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    found = re.findall(r"^([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*):(?!=)", MAKEFILE, re.MULTILINE)
    assert told and {name for names in found for name in names.split()} - {"define"} <= set(told[1].split())
