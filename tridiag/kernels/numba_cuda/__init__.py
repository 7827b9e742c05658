"""Systems on GPUs, in Numba's CUDA."""
