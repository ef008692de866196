"""TPE (Bergstra et al. 2011): `parzen_search` is the search, which FLASH may use too."""
