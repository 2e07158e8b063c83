"""A stand-in for the process with the Spark session: it writes what it was asked, and does nothing.

A file named `hold` next to the first pipeline file keeps it from ending a job; one named `die` ends it in the middle. One
named `java` has it start a process that ends as many seconds after it as the file says, deaf to SIGTERM as Java is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

stops: list[int] = []  # an event's lock could be held by the code that a second signal interrupts
signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
folder = Path(sys.argv[1]).parent
(folder / "started").write_text(str(os.getpid()), "utf-8")


def say(**message: object) -> None:
    """One answer."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End once the parent has ended: a test run that is killed closes nothing."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


JAVA = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
sys.stdin.read()
time.sleep(float(sys.argv[1]))
"""
if (folder / "java").exists():
    java = subprocess.Popen(
        [sys.executable, "-c", JAVA, (folder / "java").read_text("utf-8")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert java.stdout is not None
    java.stdout.readline()
    (folder / "java.pid").write_text(str(java.pid), "utf-8")
threading.Thread(target=end_with_parent, daemon=True).start()
for line in sys.stdin:
    job = json.loads(line)["job"]
    with (folder / "asked").open("a", encoding="utf-8") as file:
        file.write(line)
    say(job=job, step="gold shop.orders: merge")
    while (folder / "hold").exists() and not stops:
        time.sleep(0.02)
    if (folder / "die").exists():
        os._exit(137)
    code = 1 if (folder / "fail").exists() else 0
    say(job=job, done={"code": code, "text": "the commit was finished" if stops else "said <b>so</b>"})
    if stops:
        break
(folder / "ended").touch()
