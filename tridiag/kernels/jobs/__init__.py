"""The words by which a caller tells a kernel what to do; plain integers, no Numba."""
