"""Protection of stores: pickles that nobody can forge, passwords that nobody reads.

Pickles are signed with a key (`signing`), and `masking` hides the passwords of URLs.
"""
