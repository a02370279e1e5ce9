"""Asking the page of a run by plain HTTP, as a browser, a script or a stranger would."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from andrea_rundir import door
from andrea_rundir.names import RunDir


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Asks the page of a run; whatever is in `headers` goes over what a plain client sends."""

    run: RunDir

    @property
    def door(self) -> door.Door:
        found = door.read(self.run)
        assert found is not None and found.address is not None
        return found

    @property
    def url(self) -> str:
        return f"http://{self.door.address}/?token={self.door.token}"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, read: bool = True, **headers: str | None
    ) -> Answer:
        """`headers` by their names with underscores; None leaves one out. A bearer is given unless said otherwise."""
        host, _, port = str(self.door.address).rpartition(":")
        given = {"Host": self.door.address, "Authorization": f"Bearer {self.door.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.putrequest(method, path, skip_host=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        found = Answer(answer.status, dict(answer.getheaders()), answer.read() if read else b"")
        connection.close()
        return found

    def act(self, name: str, /, **asked: Any) -> Answer:
        """Post an action."""
        return self.ask(f"/api/{name}", "POST", json.dumps(asked).encode(), Content_Type="application/json")
