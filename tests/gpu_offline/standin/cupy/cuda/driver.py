"""`cupy.cuda.driver`: how many blocks a multiprocessor holds, of this one two or three, as shared memory allows."""

SHARED = 233_472


def occupancyMaxActiveBlocksPerMultiprocessor(function: int, block: int, shared: int) -> int:
    return min(3, 2048 // block, SHARED // (shared + 1024))
