"""Between the caller's memory, whatever its strides, and rows of lanes."""
