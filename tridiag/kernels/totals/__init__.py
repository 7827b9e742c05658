"""Totals of sequences: what some steps of a recurrence make of the state before them, in a few numbers."""
