"""Everything the emulator can complain about, one class per check so that a test can name the one it expects."""


class EmulationError(RuntimeError):
    """Base class. The message starts with the kernel source line and the instruction that failed."""


class UnknownInstructionError(EmulationError):
    """The kernel contains an instruction, operand or modifier the emulator does not implement (raised at load)."""


class PendingAccessError(EmulationError):
    """Check ``strict``: a register, SGPR or LDS dword is used while the load that fills it is outstanding."""


class LdsRaceError(EmulationError):
    """Check ``race``: two waves touch the same LDS dword within one barrier interval and one of them writes."""


class GlobalRaceError(EmulationError):
    """Check ``global_race``: two workgroups touch the same bytes, one writes, and no atomic orders them."""


class PoisonError(EmulationError):
    """Check ``poison``: a value that was never written (register, LDS, scratch) reaches a tensor."""


class OutOfBoundsError(EmulationError):
    """Check ``bounds``: an address outside the tensors passed to the kernel, or outside the LDS allocation."""


class MisalignedAccessError(EmulationError):
    """An access that is not aligned as the hardware requires."""


class UninitialisedOutputError(EmulationError):
    """Bytes of an output tensor were never written (raised by ``Session.check_written``)."""


class DeadlockError(EmulationError):
    """Every resident workgroup waits for something that no other workgroup can still provide."""
