"""A process that fills or compacts an archive of numbers until it is killed:

python -m tests.spark.lake.filling fill|compact ADDRESS SETTINGS END
"""

import json
import sys

from tests.spark.lake.archives import compact, run

from twinlog.spark.lake.address import parse_address
from twinlog.spark.lake.opening import open_anywhere


def main() -> None:
    what, address, settings, end = sys.argv[1:]
    lake = open_anywhere(parse_address(address, "archive"), json.loads(settings).get)
    if what == "fill":
        run(lake, int(end), per_batch=7)
    else:
        compact(lake)


if __name__ == "__main__":
    main()
