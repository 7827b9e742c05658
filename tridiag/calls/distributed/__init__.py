"""The verbs on DTensors of PyTorch: every device computes with what it has, and exchanges what it must.

Along batch axes each device has whole systems, and nothing is exchanged. Along the system axis each reduces its rows to
a few numbers a system, all gather those, and each finishes its rows (`tridiag.parts`). `placements` is the way from
DTensors to what a device has, and back; `exchange` are the collectives; `systems` and `recurrences` what is computed
where the system axis is cut; `verbs` is what `tridiag.calls.fast_path` calls.
"""
