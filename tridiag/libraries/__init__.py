"""What each array library calls the few operations the package needs; one module a library, loaded on demand."""
