"""The index of the cache: what is kept, how it was used, and what goes first when it is full.

`index` reads the table of `entry`; `bounded` admits within the budget, with `eviction` around
`pins`. `usage` is collected in a `usage_buffer`, `statistics` add it up.
`memory` keeps hot artifacts decoded, and `preview` shows what is inside of one.
"""
