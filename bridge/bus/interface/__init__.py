"""What a transport does for requesters and runners: the same records over git, ssh or memory.

`RequesterBus` and `RunnerBus` are what each side may call; `SharedBus` is what both call. One object may serve both:
`bridge.bus.refbus.RefBus` does. Every call may be slow and may raise `bridge.errors.RemoteError`; none decides policy,
judges evidence or prints.
"""

from bridge.bus.interface.history import History
from bridge.bus.interface.requester import RequesterBus
from bridge.bus.interface.runner import RunnerBus
from bridge.bus.interface.shared import SharedBus

__all__ = ["History", "RequesterBus", "RunnerBus", "SharedBus"]
