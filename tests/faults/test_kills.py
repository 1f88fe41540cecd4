import random

import pytest
from tests.faults.kill_run import KillRun


@pytest.mark.timeout(300)
def test_what_a_sync_pair_acknowledged_survives_kills_of_either_broker(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    history = KillRun(tmp_path, seed).run(seconds=8)
    assert history.kills and history.acknowledged, f"the run proved nothing: {history}"
