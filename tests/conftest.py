"""What every test stands on: SIGINT reaches the programs that tests start, however the suite itself was started."""

from __future__ import annotations

import signal

# A suite started in the background inherits an ignored SIGINT, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
