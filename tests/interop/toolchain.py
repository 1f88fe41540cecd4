"""Finds Java and Maven, fetches Apache RocketMQ once, and compiles our Java programs against it.

Everything lands in one cache directory ($TWINLOG_CACHE, else ~/.cache/twinlog):

    rocketmq/<version>/lib/*.jar           the released jars with their dependencies
    rocketmq/<version>/classes-<digest>/   tests/interop/java compiled against those jars
    pyspark/<version>/                     another Spark than the one in use

A machine without Java or Maven skips the tests that need them; TWINLOG_REQUIRE_INTEROP=1
turns that skip into a failure.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

VERSIONS = ("5.5.0", "4.9.7")
ARTIFACTS = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-client", "rocketmq-tools")
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
JAVA_SOURCES = Path(__file__).parent / "java"

# Java 17 hides what RocketMQ's mapped files and fastjson reach into by reflection.
OPENED_PACKAGES = ("java.nio", "java.lang", "java.util", "java.util.concurrent", "sun.nio.ch", "jdk.internal.ref")
MODULE_OPTIONS = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES]


def cache_directory() -> Path:
    return Path(os.environ.get("TWINLOG_CACHE") or Path.home() / ".cache" / "twinlog")


def unavailable(why: str) -> NoReturn:
    """Skip the test with one line, or fail it where interop was promised."""
    if os.environ.get("TWINLOG_REQUIRE_INTEROP") == "1":
        pytest.fail(f"{why} (TWINLOG_REQUIRE_INTEROP=1 forbids skipping)", pytrace=False)
    pytest.skip(why)


def find_tool(name: str) -> str:
    """The path of a program, or a skip that names it."""
    found = shutil.which(name)
    if not found and name in ("java", "javac") and (home := os.environ.get("JAVA_HOME")):
        found = shutil.which(name, path=str(Path(home) / "bin"))
    if not found and name == "go":
        found = shutil.which(name, path="/usr/local/go/bin")
    return found or unavailable(f"interop needs `{name}` on PATH; install it to run this test")


@functools.cache
def rocketmq_jars(version: str) -> Path:
    """The folder of RocketMQ's jars, downloaded by Maven the first time."""
    return library_of("rocketmq", version, *(f"org.apache.rocketmq:{name}:{version}" for name in ARTIFACTS))


def library_of(name: str, version: str, *packages: str) -> Path:
    """The folder of these jars (group:artifact:version) and all they need, downloaded by Maven the first time."""
    library = cache_directory() / name / version / "lib"
    if library.is_dir():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        _copy_jars(Path(work), "".join(map(_dependency, packages)))
        _publish(Path(work, "lib"), library)
    return library


def maven_packages(*packages: str) -> list[Path]:
    """These jars (group:artifact:version) in Maven's own cache, without what they depend on."""
    if not all(_cached_jar(package).exists() for package in packages):
        with tempfile.TemporaryDirectory() as work:
            _copy_jars(Path(work), "".join(_dependency(package, alone=True) for package in packages))
    return [_cached_jar(package) for package in packages]


@functools.cache
def pyspark_environment(version: str) -> Path:
    """A folder with another PySpark, for PYTHONPATH; pip fetches it the first time."""
    folder = cache_directory() / "pyspark" / version
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", f"{work}/out", f"pyspark=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            unavailable(f"pip does not fetch pyspark {version}: {done.stderr.strip()[-200:]}")
        _publish(Path(work, "out"), folder)
    return folder


@functools.cache
def compiled_classes(version: str) -> Path:
    """The folder of our Java programs, compiled against `version`; kept until a source changes.

    java/common compiles against every version, java/<version> only against that one.
    """
    sources = sorted([*JAVA_SOURCES.glob("common/*.java"), *JAVA_SOURCES.glob(f"{version}/*.java")])
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    library = rocketmq_jars(version)
    classes = library.parent / f"classes-{digest}"
    if classes.is_dir():
        return classes
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        command = [find_tool("javac"), "-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", f"{library}/*", "-d", work]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.fail(f"javac refuses our programs against RocketMQ {version}:\n{done.stderr}", pytrace=False)
        shutil.copytree(work, f"{work}/out")
        _publish(Path(work, "out"), classes)
    return classes


def java_command(version: str, main: str, *args: str, options: list[str], heap_mb: int = 256) -> list[str]:
    """A command line that runs `main` of RocketMQ or ours, with low priority and a small heap.

    The JVM options favour a quick start on few cores over peak speed; a benchmark passes its own after them.
    """
    classpath = f"{compiled_classes(version)}:{rocketmq_jars(version)}/*"
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto", "-Xss512k"]
    memory = [f"-Xms{min(heap_mb, 128)}m", f"-Xmx{heap_mb}m"]
    nice = [found, "-n", "5"] if (found := shutil.which("nice")) else []
    return [*nice, find_tool("java"), *quick, *memory, *MODULE_OPTIONS, *options, "-cp", classpath, main, *args]


def _copy_jars(work: Path, dependencies: str) -> None:
    """Let Maven fetch jars and copy them to `work`/lib."""
    (work / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>twinlog</groupId><artifactId>interop</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = [find_tool("mvn"), "-q", "-B", COPY_GOAL, "-DoutputDirectory=lib", "-DincludeScope=runtime"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=900)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
        unavailable(f"Maven could not fetch the jars: {lines[0] if lines else done.stderr[:200]}")


def _dependency(package: str, *, alone: bool = False) -> str:
    group, artifact, version = package.split(":")
    others = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>" if alone else ""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{others}</exclusions></dependency>"
    )


def _cached_jar(package: str) -> Path:
    group, artifact, version = package.split(":")
    return Path.home().joinpath(".m2/repository", *group.split("."), artifact, version, f"{artifact}-{version}.jar")


def _publish(made: Path, wanted: Path) -> None:
    """Rename into place; when another run was faster, its result is as good."""
    try:
        made.rename(wanted)
    except OSError:
        if not wanted.is_dir():
            raise
