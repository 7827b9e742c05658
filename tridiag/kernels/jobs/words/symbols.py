"""What compiled code is called."""

# of the symbol under which other kernels call a kernel; a function inside it of that name would be called in its place
PREFIX = "tridiag_"
INNER = PREFIX + "inner"  # the symbol under which a kernel around others calls each of them
