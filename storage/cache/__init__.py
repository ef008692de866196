"""The index of the cache: artifacts, their use, and their eviction.

`index` reads the table of artifacts, and an `entry` is one row of the table. `bounded` admits
artifacts within the budget and evicts unpinned ones. `usage` counts hits, misses and seconds, and
`preview` shows the contents of an artifact.
"""
