"""What can be chosen: steps of algorithms, and a choice among them as a record or a vector.

`algorithm` and `space` declare, `configuration` holds one choice (and a query, what to run of it),
`encoding` and `candidates` turn configurations into arrays, `grids` puts discrete values on the
unit interval, and `naming` answers an unknown name with the nearest known one.
"""
