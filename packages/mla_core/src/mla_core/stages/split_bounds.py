"""What the host knows about a plan that only the device can make (`split_plan`): bounds for scratch. No Triton."""

from __future__ import annotations

ROUND_CHOICES = 4
"""Numbers of rounds that the plan tries."""


def max_items(batch: int, slots: int, max_steps: int) -> int:
    """Largest number of items that any lengths can give: what scratch for partial results is sized for.

    `max_steps`: steps of the longest sequence that the page table can hold.
    """
    fewest = -(-batch // slots)
    most = fewest + (ROUND_CHOICES - 1) * max(1, fewest // 2)
    return min(most * slots, batch * max(1, max_steps))
