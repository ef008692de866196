"""The methods of search: a file each, or a folder where one file would hold several subjects."""
