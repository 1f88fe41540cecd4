"""Runs a file in which `await` and `async with` may stand outside of functions, as in a notebook."""

import ast
import asyncio
import inspect
import sys
from pathlib import Path

source = Path(sys.argv[1]).read_text()
code = compile(source, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {"__name__": "__main__"}


async def main() -> None:
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(main())
else:
    exec(code, names)
