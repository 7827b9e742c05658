"""What compiled code is called."""

PREFIX = "tridiag_"  # of the symbol under which other kernels call a kernel
