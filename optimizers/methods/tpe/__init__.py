"""TPE (Bergstra et al. 2011): its `declaration`, and `tpe`, the method.

`parzen_search` is the search, which FLASH may use too.
"""
