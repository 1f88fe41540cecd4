"""Make the virtual environment of this clone, with pip in it, using the standard library alone.

Debian splits `ensurepip` off into python3-venv, so a bare `python3 -m venv` fails there. Then pip comes from the
package index that PIP_INDEX_URL names, or, for root on Debian, the missing package is installed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv

PYTHON_MIN = (3, 11)


def main() -> None:
    if sys.version_info < PYTHON_MIN:
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"Python {found} is too old, 3.11 or newer is needed: make PYTHON=/path/to/python3.11")
    folder = pathlib.Path(sys.argv[1])
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=False, symlinks=True)
    if runs(python, "-m", "pip", "--version"):
        return
    if runs(python, "-m", "ensurepip", "--default-pip"):
        return
    index = os.environ.get("PIP_INDEX_URL")
    if index:
        install_pip_from_index(python, index)
    elif not (install_debian_venv() and runs(python, "-m", "ensurepip", "--default-pip")):
        sys.exit(
            "this Python cannot give an environment its pip: install the package python3-venv (as root: apt-get "
            "install python3-venv), or set PIP_INDEX_URL to a package index"
        )


def install_debian_venv() -> bool:
    """Install the part of Python that Debian leaves out; only root on Debian can."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    print(f"installing {package}, which this Python needs to make environments")
    return runs("apt-get", "update") and runs("apt-get", "install", "--yes", package)


def install_pip_from_index(python: pathlib.Path, index: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = pip_wheel_address(index)
        wheel = pathlib.Path(folder, address.rpartition("/")[2])
        with urllib.request.urlopen(address, timeout=120) as answer:
            wheel.write_bytes(answer.read())
        # A wheel is a zip file that Python can import from, pip's included.
        subprocess.run([python, f"{wheel}/pip", "install", "--quiet", "--no-index", wheel], check=True)


def pip_wheel_address(index: str) -> str:
    page = index.rstrip("/") + "/pip/"
    request = urllib.request.Request(page, headers={"Accept": "text/html"})  # the form that every index serves
    with urllib.request.urlopen(request, timeout=120) as answer:
        links = re.findall(r"""href=["']([^"']*/pip-([0-9.]+)-py3-none-any\.whl)""", answer.read().decode())
    if not links:
        sys.exit(f"{page} lists no wheel of pip: install python3-venv, or set PIP_INDEX_URL to an index that has one")
    newest = max(links, key=lambda link: [int(part) for part in link[1].split(".")])
    return urllib.parse.urljoin(page, newest[0])


def runs(*command: str | os.PathLike[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
