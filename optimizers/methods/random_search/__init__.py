"""Random search (Bergstra and Bengio 2012): the baseline."""
