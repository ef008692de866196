"""Nothing here is for others to read or to forge.

Pickles are read with a key (`signing`, which may be in a `secret_block`), a `private_folder` is
closed to other users, and `masking` hides the passwords of URLs, also in a `masked_stream`.
"""
