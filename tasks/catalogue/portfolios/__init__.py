"""Configurations that did well on many tables, as JSON by space; `portfolio` reads them."""
