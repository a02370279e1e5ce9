"""Which shards a policy's arms are: `data/sources.json`, kept for every policy that was ever prepared in a run.

Writes `data/sources.json`. Imports `andrea_rundir`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from andrea_rundir import jsontext
from andrea_rundir.faults import BadConfig, raise_shortage
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Policy
from andrea_rundir.publish import publish

TODO = "run `andrea prepare RUN`"


def sources_digest(policy: Policy) -> str:
    """SHA-256 (hex) of the part of a policy that says what its arms are made of.

    Names, paths, formats and what is done with bytes that are not UTF-8; limits, phases, learner and comments
    may change and the same shards serve.
    """
    parts = {name: arm.model_dump(include={"path", "format", "errors"}) for name, arm in policy.arms.items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def record(run: RunDir, policy: Policy, fingerprints: Mapping[str, str]) -> None:
    """Note that these shards are the policy's arms; what is noted of other policies stays."""
    entries = _entries(run) | {sources_digest(policy): dict(fingerprints)}
    publish(run.data / "sources.json", (json.dumps(entries, indent=1, sort_keys=True) + "\n").encode())


def fingerprints(run: RunDir, policy: Policy) -> dict[str, str]:
    """The shards of a policy, fingerprint by arm; BadConfig when it has not been prepared."""
    found = _entries(run).get(sources_digest(policy))
    if found is None:
        raise BadConfig(
            "the sources of this policy are not prepared",
            where=str(run.data / "sources.json"),
            found="no entry for them",
            todo=TODO,
        )
    return found


def _entries(run: RunDir) -> dict[str, dict[str, str]]:
    """Fingerprints by arm, by digest of the sources; empty when there is no such file."""
    path = run.data / "sources.json"
    try:
        entries = jsontext.loads(path.read_bytes())
        return {str(digest): {str(n): str(f) for n, f in arms.items()} for digest, arms in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise_shortage(error)
        raise BadConfig(
            "the list of shards cannot be read",
            where=str(path),
            found=str(error),
            todo="restore or remove it, then " + TODO,
        ) from error
