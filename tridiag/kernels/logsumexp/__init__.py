"""Recurrences of logarithms, `logcumsumexp` among them."""
