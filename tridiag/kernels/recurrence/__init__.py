"""Linear recurrences, of numbers and of small vectors."""
