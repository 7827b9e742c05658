"""A stand-in for the part of CuPy that calls the libraries of CUDA."""
