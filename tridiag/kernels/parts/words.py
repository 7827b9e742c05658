"""What is told of parts, and what they are finished with: numbers of each."""

RELATIONS = 6  # x[n-1] = last + last_before e + last_behind f, x[0] = first + first_before e + first_last x[n-1]
VALUES, KNOWN = 2, 4  # e and x[n-1]; and f and x[0], where the kernel judges the rows at the ends
