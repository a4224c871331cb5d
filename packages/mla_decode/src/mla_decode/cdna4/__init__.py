"""Absorbed decode for gfx950 (CDNA 4) in Gluon. `solution.py` registers it, `kernel.py` is the kernel."""
