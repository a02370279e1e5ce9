"""A pivot: another policy from step S+1 on, the same weights, nothing paused.

Promises that a request is refused before anything changes when it cannot be carried out, that the first durable plan
line of the new policy is the commit, and that every act can be done twice, so that a proxy killed anywhere finishes
it. Writes `policy.pending.toml` (by renaming the request), `archive/step_S/` and `policy.toml`; what is refused goes to
`policy.next.toml.bad`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from andrea_corpus.ledger import fingerprints
from andrea_corpus.rounds import Regime
from andrea_proxy import samples
from andrea_proxy.policies import Policies
from andrea_rundir import policy, sidecars, tomlfile
from andrea_rundir.faults import BadConfig, Fault, raise_shortage
from andrea_rundir.names import RunDir, checkpoint_name
from andrea_rundir.publish import aside, fsync_dir, fsync_file, publish

Say = Callable[[str, int], None]
"""Takes a sentence and the step it is about."""

BEING_WRITTEN_SECONDS = 1.0
"""How long an empty request may be one that an editor, or `cp`, has made and not filled yet."""


class Pivot:
    """The request under way, if any, and the archive of the policy that ended last."""

    def __init__(self, run: RunDir, policies: Policies, run_id: str, say: Say) -> None:
        self._run, self._policies, self._run_id, self._say = run, policies, run_id, say
        self._told: set[str] = set()

    @property
    def pending(self) -> str | None:
        """The text of a claimed request."""
        try:
            return tomlfile.read(self._run.policy_pending)
        except BadConfig:
            return None

    def claim_edit(self, regime: Regime) -> None:
        """At a start: `policy.toml` is not the policy in force, so somebody edited it; claim it as a request.

        BadConfig when it cannot be used or is not prepared: the proxy must not go on as if nothing had been wished.
        """
        path = self._run.policy_toml
        if not path.exists():
            publish(path, regime.text.encode())
            self._say("policy.toml was gone: written anew from the plan", regime.start)
        elif self.pending is None and (text := tomlfile.read(path)) != regime.text:
            self._policies.usable(text, str(path))
            publish(self._run.policy_pending, text.encode())
            self._say("policy.toml was edited: it takes effect at the next boundary", regime.start)

    def claim(self, regime: Regime) -> None:
        """Claim the request that lies there, unless one is under way; one that cannot be used is set aside."""
        request = self._run.policy_next
        if self.pending is not None or not _is_there(request):
            return
        with suppress(FileNotFoundError):  # undone this very moment
            try:
                text = tomlfile.read(request)
                if (text, self._policies.usable(text, str(request))) == (regime.text, dict(regime.arms)):
                    raise BadConfig("this policy is in force already", where=str(request))
                _harden(request)
            except Fault as fault:
                self._refuse(request, fault)
            else:
                request.rename(self._run.policy_pending)
                fsync_dir(self._run.root)

    def undo(self, fault: Fault) -> None:
        """The claimed request turns out not to be possible, and nothing was planned under it: it never was."""
        self._refuse(self._run.policy_pending, fault)

    def _refuse(self, request: Path, fault: Fault) -> None:
        """Set a request aside, with the reason on top of it: whoever asked finds it there."""
        kept = aside(self._run.policy_next)
        reason = "".join(f"# {line}\n" for line in ("refused: " + "\n".join(fault.lines())).splitlines())
        try:
            publish(kept, reason.encode(errors="backslashreplace") + request.read_bytes())
            request.unlink()
        except OSError:  # it cannot be read, or there is no room: the journal alone has the reason
            request.rename(kept)
        fsync_dir(self._run.root)
        self._say(f"a pivot was refused, its policy is kept as {kept.name}: {'; '.join(fault.lines())}", 0)

    def wanted(self, regime: Regime) -> Callable[[int], Regime] | None:
        """For the curriculum, whose newest line is under `regime`: the policy to go over to; None when it has."""
        text = self.pending
        if text is None or self._is(text, regime):
            return None
        return lambda step: self._policies.prepared(text, str(self._run.policy_pending), step)

    def archive(self, before: Regime, regime: Regime, state: Callable[[], dict[str, Any]], recorded: bool) -> bool:
        """Fill `archive/step_S/` for the policy `before` that ended with step S, as far as can be done now.

        `regime` is in force since; `state` gives the old policy's state after S; `recorded` says whether entry S is
        durable. True when the archive is complete and `policy.toml` is the policy in force.
        """
        step = regime.start
        folder = self._run.archived(step)
        if not (folder / "policy.toml").exists():
            self._run.archive.mkdir(exist_ok=True)  # no parents: a run that was moved away is not begun again here
            folder.mkdir(exist_ok=True)
            fsync_dir(self._run.archive)  # before anything relies on what is in there
            fsync_dir(self._run.root)
            if not (folder / ".state.json").exists():
                sidecars.save(folder / ".state.json", state())
            later = max(self._run.checkpoints(), default=0) > step
            if not (recorded and self._link(folder, step, later)):
                return False
            audits = samples.collect(self._run, before.id, until=step)
            if not (step in audits or later):
                return False
            sidecars.save(folder / ".samples.json", samples.content(self._run, self._run_id, before.id, audits))
            publish(folder / "policy.toml", before.text.encode())  # last: it says that the rest is durable
        if (text := self.pending) is not None and self._is(text, regime):
            self._keep_edit(before, regime)
            self._run.policy_pending.rename(self._run.policy_toml)
            fsync_dir(self._run.root)
            self._say(f"policy {before.id} ended with step {step}; {regime.id} is in force", step)
        return True

    def _keep_edit(self, before: Regime, regime: Regime) -> None:
        """`policy.toml` is about to be replaced: if it was edited while the pivot was under way, keep a copy."""
        path = self._run.policy_toml
        if path.exists() and (text := tomlfile.read(path)) not in (before.text, regime.text):
            publish(path.with_name(path.name + ".edited"), text.encode())
            self._say("policy.toml was edited during a pivot: the edit is kept as policy.toml.edited", regime.start)

    def _link(self, folder: Path, step: int, later: bool) -> bool:
        """A hard link to the checkpoint of `step`; True also when there will never be one (it could not be saved)."""
        name = checkpoint_name(step)
        with suppress(FileExistsError, FileNotFoundError):
            os.link(self._run.root / name, folder / name)
        if (folder / name).exists():
            return True
        if later and name not in self._told:
            self._told.add(name)
            self._say(f"{name} is not there: the archive of the policy that ended with it goes without", step)
        return later

    def _is(self, text: str, regime: Regime) -> bool:
        """Whether a policy's text, over the sources as they are prepared now, is the policy in force."""
        if text != regime.text:
            return False
        try:
            rules = policy.parse(text, str(self._run.policy_pending), self._run.root)
            return fingerprints(self._run, rules) == dict(regime.arms)
        except BadConfig:
            return True


def _is_there(request: Path) -> bool:
    """Whether somebody has made a request: an empty file is none yet while it is young."""
    try:
        found = request.stat()
    except FileNotFoundError:
        return False
    return found.st_size > 0 or abs(time.time() - found.st_mtime) > BEING_WRITTEN_SECONDS


def _harden(request: Path) -> None:
    """Make durable what an editor may have left in memory: what is claimed is ours to keep. BadConfig if it fails."""
    try:
        fsync_file(request)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise_shortage(error)
        raise BadConfig(
            "the request cannot be made durable", where=str(request), found=error.strerror or str(error)
        ) from error
