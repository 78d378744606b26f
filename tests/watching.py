"""Child processes under watch: what they say has to come in time, and they have to end well."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

QUIET_SECONDS = 100.0

# Dawn finds room where wgpu-native says there is none, and keeps more of its first devices.
of_wgpu_native = pytest.mark.skipif("ROWGRAD_TINT" in os.environ, reason="the memory is Dawn's, not wgpu-native's")


def end(child: "subprocess.Popen[str]") -> None:
    """Ends it and the children of its own, which hold its standard output."""
    if os.name == "nt":
        child.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def watched(*arguments: str, quiet: float = QUIET_SECONDS) -> list[str]:
    """The lines that Python says on standard output when it runs with these arguments, each warning an error.

    Fails if it crashes, ends with another status than 0, or says nothing for `quiet` seconds, and tells what it said
    last.
    """
    lines: list[str] = []
    said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-u", "-X", "faulthandler", "-W", "error", *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as child:

            def listen() -> None:
                for line in child.stdout or ():
                    said.put(line.rstrip("\n"))
                said.put(None)

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            try:
                while (line := said.get(timeout=quiet)) is not None:
                    lines.append(line)
                status = child.wait(quiet)
            except (queue.Empty, subprocess.TimeoutExpired):
                pytest.fail(f"it said nothing for {quiet} s after: {lines[-3:]}")
            finally:
                end(child)
                listener.join()
        errors.seek(0)
        assert status == 0, f"it ended with {status} after {lines[-3:]}:\n{errors.read()[-4000:]}"
    return lines
