"""Globins aligned at a temperature: the expected alignments as a picture, and the classic score in the limit.

    python examples/globin_alignment.py [--temperature 1.0] [--output globins.png]

All pairs of four globins in one call: BLOSUM62, affine gaps. At a low temperature the score is that of Smith and
Waterman, as Biopython computes it; at a higher one the gradient with respect to the scores tells how sure each match
is.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence

import jax
import matplotlib
import numpy as np
from Bio import Align
from Bio.Align import substitution_matrices

import tridiag

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GLOBINS = {
    "haemoglobin alpha, human": (
        "MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHGKKVADALTNAVAHVDDMPNA"
        "LSALSDLHAHKLRVDPVNFKLLSHCLLVTLAAHLPAEFTPAVHASLDKFLASVSTVLTSKYR"
    ),
    "haemoglobin beta, human": (
        "MVHLTPEEKSAVTALWGKVNVDEVGGEALGRLLVVYPWTQRFFESFGDLSTPDAVMGNPKVKAHGKKVLGAFSDGLAHLD"
        "NLKGTFATLSELHCDKLHVDPENFRLLGNVLVCVLAHHFGKEFTPPVQAAYQKVVAGVANALAHKYH"
    ),
    "myoglobin, human": (
        "MGLSDGEWQLVLNVWGKVEADIPGHGQEVLIRLFKGHPETLEKFDKFKHLKSEDEMKASEDLKKHGATVLTALGGILKKK"
        "GHHEAEIKPLAQSHATKHKIPVKYLEFISECIIQVLQSKHPGDFGADAQGAMNKALELFRKDMASNYKELGFQG"
    ),
    "leghaemoglobin II, lupin": (
        "MGALTESQAALVKSSWEEFNANIPKHTHRFFILVLEIAPAAKDLFSFLKGTSEVPQNNPELQAHAGKVFKLVYEAAIQLQ"
        "VTGVVVTDATLKNLGSVHVSKGVADAHFPVVKEAILKTIKEVVGAKWSEELNSAWTIAYDELAIVIKKEMNDAA"
    ),
}
GAPS = {"gap": -1.0, "gap_open": -11.0}
COLD = 0.01


def batch() -> tuple[list[tuple[str, str]], np.ndarray, np.ndarray]:
    """All pairs of globins: their names, their scores, and their lengths."""
    matrix = substitution_matrices.load("BLOSUM62")
    table, letters = np.array(matrix, np.float32), {letter: k for k, letter in enumerate(matrix.alphabet)}
    codes = {name: np.array([letters[letter] for letter in text]) for name, text in GLOBINS.items()}
    pairs = list(itertools.combinations(GLOBINS, 2))
    lengths = np.array([[len(codes[name]) for name in pair] for pair in pairs])
    scores = np.zeros((len(pairs), *lengths.max(0)), np.float32)
    for k, (first, second) in enumerate(pairs):
        scores[k, : lengths[k, 0], : lengths[k, 1]] = table[np.ix_(codes[first], codes[second])]
    return pairs, scores, lengths


def by_biopython(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The score of Smith and Waterman."""
    aligner = Align.PairwiseAligner(mode="local", substitution_matrix=substitution_matrices.load("BLOSUM62"))
    aligner.open_gap_score, aligner.extend_gap_score = GAPS["gap_open"], GAPS["gap"]
    return np.array([aligner.score(*(GLOBINS[name] for name in pair)) for pair in pairs])


def expected(scores: np.ndarray, lengths: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """The scores of all pairs, and the probability of each match."""

    def total(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = tridiag.smith_waterman(scores, lengths, temperature=temperature, **GAPS)
        return found.sum(), found

    probability, found = jax.jit(jax.grad(total, has_aux=True))(scores)
    return np.asarray(found), np.asarray(probability)


def draw(pairs: Sequence[tuple[str, str]], lengths: np.ndarray, probability: np.ndarray, output: str) -> None:
    """A map for each pair."""
    figure, axes = plt.subplots(2, len(pairs) // 2, figsize=(12, 8.4), layout="constrained")
    for axis, (first, second), (rows, columns), chance in zip(axes.flat, pairs, lengths, probability, strict=True):
        picture = axis.imshow(chance[:rows, :columns], cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
        axis.set(xlabel=second, ylabel=first)
    figure.colorbar(picture, ax=axes, label="probability of the match", shrink=0.6)
    figure.savefig(output, dpi=120)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--output", default="globins.png")
    options = parser.parse_args(arguments)
    pairs, scores, lengths = batch()
    classic, cold = by_biopython(pairs), tridiag.smith_waterman(scores, lengths, temperature=COLD, **GAPS)
    smooth, probability = expected(scores, lengths, options.temperature)
    for k, (first, second) in enumerate(pairs):
        print(
            f"{first:25} {second:25} Biopython {classic[k]:4.0f}, at T = {COLD:g} {cold[k]:7.2f}, "
            f"at T = {options.temperature:g} {smooth[k]:7.2f}; {probability[k].sum():5.1f} matches expected"
        )
    draw(pairs, lengths, probability, options.output)
    agrees = np.array_equal(np.round(cold), classic)
    print(f"{'agrees' if agrees else 'DISAGREES'} with Biopython; the expected alignments are in {options.output}")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
