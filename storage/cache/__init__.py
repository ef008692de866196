"""The index of the cache: what is kept, how it was used, and what goes first when it is full."""
