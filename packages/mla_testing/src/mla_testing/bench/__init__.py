"""Benchmarks of both operations: correctness first, then time against the roofs that the machine was measured at."""
