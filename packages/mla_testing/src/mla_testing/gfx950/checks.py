"""Which checks an emulation makes."""

from collections.abc import Iterable

import attrs

# A NaN as float32, as a pair of bf16 or f16, and in every fp8 byte; not a NaN that arithmetic itself produces.
POISON = 0x7FFF7FFF


@attrs.frozen
class Checks:
    """All on by default. See docs/emulator.md for what each one finds."""

    strict: bool = True
    race: bool = True
    poison: bool = True
    bounds: bool = True
    global_race: bool = True

    @classmethod
    def of(cls, checks: "Checks | Iterable[str] | str | None") -> "Checks":
        """``"all"`` or None, ``"none"``, one name, or several names."""
        if isinstance(checks, Checks):
            return checks
        names = [field.name for field in attrs.fields(cls)]
        if checks is None or checks == "all":
            return cls()
        chosen = [] if checks == "none" else [checks] if isinstance(checks, str) else list(checks)
        unknown = sorted(set(chosen) - set(names))
        if unknown:
            raise ValueError(f"checks {unknown} are not known; allowed are 'all', 'none' or any of {names}")
        return cls(**{name: name in chosen for name in names})
