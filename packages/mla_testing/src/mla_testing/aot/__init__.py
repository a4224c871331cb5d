"""Compiling every registered kernel ahead of time: the catalogue, the compilation in parallel, and the manifests."""

from mla_testing.aot.catalog import CatalogEntry, catalog
from mla_testing.aot.compile_all import compile_all
from mla_testing.aot.row import CompiledRow

__all__ = ["CatalogEntry", "CompiledRow", "catalog", "compile_all"]
