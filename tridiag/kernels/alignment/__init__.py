"""Smooth local alignment of pairs of sequences."""
