"""What a pipeline is judged by: the `metric`, and constraints on what else is measured of it.

A `quantity` is what can be bounded, a `constraint` the bound; `measurement` measures it, `latency`
and the comparison of `groups` in files of their own.
"""
