"""The index of the cache: what is kept, how it was used, and what goes first when it is full.

`index` reads the table of artifacts, a row of which is an `entry`. `bounded` admits within the
budget and evicts what no pins protect. `usage` counts hits, misses and seconds, and `preview` shows
the contents of an artifact.
"""
