"""Parts of systems: how their ends depend on the rows before and behind, and their rows once these are known."""
