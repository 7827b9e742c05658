"""The host's side of the CUDA C kernels in `tridiag.kernels`: what is launched, with which numbers, and how."""
