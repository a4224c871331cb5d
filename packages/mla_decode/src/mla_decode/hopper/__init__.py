"""Absorbed decode on Hopper (sm_90): bulk copies, asynchronous warpgroup products, one device-balanced launch."""
