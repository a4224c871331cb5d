"""Prefill on Hopper (sm_90): a persistent, warp-specialised Gluon kernel and its device-side planner."""
