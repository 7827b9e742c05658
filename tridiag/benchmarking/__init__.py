"""What benchmarks are made of: the race, streams, problems, pictures.

Behind ``python -m tridiag bench`` and the programs in ``benchmarks/``; nothing else of the package imports it.
"""
