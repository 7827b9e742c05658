"""Systems and recurrences on GPUs, in Numba's CUDA."""
