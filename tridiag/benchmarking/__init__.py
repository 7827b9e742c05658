"""What benchmarks are made of: the race, streams, problems, loops from textbooks; and the suites, which have names.

Behind ``python -m tridiag bench`` and the programs in ``benchmarks/``; nothing else of the package imports it.
"""
