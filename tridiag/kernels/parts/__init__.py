"""Parts of systems: how the ends of some rows depend on the rows before and behind, and those rows once these are known."""
