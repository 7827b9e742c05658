"""Compiled inner loops: what each folder holds.

A kernel is a C function ``void run(job, helpers)``, built by ``build`` in the module ``kernel`` of its folder. Folders
that stand further down are used by those above, never the other way round::

    thomas cyclic partition blocks            systems: many short or interleaved, periodic, few long, of blocks
    products                                  matrices times vectors
    recurrence selective logsumexp kalman alignment     the other verbs
    many_states states_in_lanes               Kalman filters of models of any size: of few series, of many
    numba_cuda triton pallas                  on GPUs, each in a language of its own (CUDA C: `tridiag.cuda`)
    access                                    between the caller's memory, whatever its strides, and rows of lanes
    runtime                                   thread teams, the object cache, calls from CPython and XLA, memory kept
    simd                                      the language for inner loops, with no solver in it; raw memory
    jobs                                      the words by which a caller tells a kernel what to do; plain integers

A row of lanes is one vector: the entries of one row of as many systems as it has lanes.
"""
