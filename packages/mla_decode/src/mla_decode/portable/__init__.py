"""Solutions for machines that no kernel is written for: plain Triton for any GPU, plain torch for anything."""
