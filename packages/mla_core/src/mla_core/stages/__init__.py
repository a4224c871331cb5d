"""Stages that several kernels share; each exists once."""
