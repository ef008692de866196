"""Nothing here is for others to read or to forge.

Pickles are signed with a key (`signing`), and `masking` hides the passwords of URLs.
"""
