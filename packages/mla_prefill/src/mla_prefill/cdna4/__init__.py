"""The gfx950 (CDNA 4) solution of prefill, in Gluon."""
