"""Layouts of tensors in registers and in shared memory, by rule: named builders, one module for each machine."""
