"""Block tridiagonal systems."""
