"""Products of tridiagonal matrices with vectors."""
