"""The names of `twinlog.client` are imported when they are used."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

from twinlog import client


def test_every_name_is_the_one_that_type_checkers_see():
    seen = {}
    for node in ast.walk(ast.parse(inspect.getsource(client))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("twinlog."):
            seen |= {alias.name: node.module for alias in node.names}
    assert seen.keys() == set(client.__all__) == client._HOME_OF.keys()
    for name, module in seen.items():
        assert getattr(client, name) is getattr(importlib.import_module(module), name)
    assert set(client.__all__) <= set(dir(client))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'Produzer'"):
        client.Produzer  # noqa: B018


def test_the_errors_come_without_the_rest():
    heavy = ("asyncio", "twinlog.net.connection")
    code = f"import sys, twinlog.client.errors; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
