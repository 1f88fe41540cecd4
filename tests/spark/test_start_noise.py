import subprocess
import sys

PROGRAM = """
import subprocess, sys
from twinlog.spark.start_noise import without_start_noise
with without_start_noise():
    child = subprocess.Popen([sys.executable, "-c", '''
import sys, time
print("WARNING: Using incubator modules: jdk.incubator.vector", file=sys.stderr)
print("26/11/15 WARN NativeCodeLoader: Unable to load", file=sys.stderr)
print("something went wrong", file=sys.stderr, flush=True)
time.sleep(0.2)
print("and later, too", file=sys.stderr)
'''])
print("our own", file=sys.stderr, flush=True)
child.wait()
import time; time.sleep(0.2)
"""


def test_a_child_may_complain_but_its_greetings_are_dropped():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert sorted(done.stderr.splitlines()) == ["and later, too", "our own", "something went wrong"]
