"""Which backend runs a problem: the choice, what has been measured, on which machine, and how that is told."""
