"""What a pipeline is judged by: the `metric`, and constraints on what else is measured of it."""
