"""What compiled code is called."""

PREFIX = "tridiag_"  # of the symbol under which other kernels call a kernel
INNER = PREFIX + "inner"  # the symbol under which a kernel around others calls each of them
