"""Facts besides the experiment that a result may depend on."""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import numpy as np
import torch

PROJECT = Path(__file__).parents[3]  # in a checkout


def versions() -> dict[str, str]:
    """Return the versions of Python, the computing packages, this package and the machine, by name."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    try:
        package = Distribution.from_name("holdfast")
    except PackageNotFoundError:  # run from a source tree
        package = None
    found["holdfast"] = "source" if package is None else package.version
    if (commit := _checked_out(PROJECT) or _installed_from(package)) is not None:
        found["commit"] = commit
    found |= {"machine": platform.machine(), "cpu": torch.backends.cpu.get_cpu_capability(), "processor": _processor()}
    return found | {"threads": str(torch.get_num_threads())}


@cache
def _processor() -> str:
    """Vendor, family, model and stepping, as 'GenuineIntel 6-143-8': libraries choose how they multiply by them."""
    told: dict[str, str] = {}
    with contextlib.suppress(OSError):  # only Linux has the file
        for line in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            told[name.strip()] = value.strip()
    if "vendor_id" not in told:
        return platform.processor() or "unknown"
    return f"{told['vendor_id']} {'-'.join(told.get(name, '?') for name in ('cpu family', 'model', 'stepping'))}"


@cache
def _checked_out(project: Path) -> str | None:
    """Return the commit of a checkout, with '-dirty' if files were changed since; None if it is none."""
    if not (project / ".git").exists():
        return None
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # no git here, or one that refuses
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    return None


def _installed_from(package: Distribution | None) -> str | None:
    """Return the commit that pip installed from, which it notes for a repository's address."""
    written = package and package.read_text("direct_url.json")
    if not written:
        return None
    commit = json.loads(written).get("vcs_info", {}).get("commit_id")
    return commit[:12] if commit else None
