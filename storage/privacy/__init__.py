"""Nothing here is for others to read or to forge.

Pickles are read with a key (`signing`, which may be in a `secret_block`), and `masking` hides the
passwords of URLs, also in a `masked_stream`.
"""
