"""The page under systemd: through the socket that it opened, without any network, over restarts of the proxy."""

from __future__ import annotations

import json
from typing import Any

from andrea_rundir.events import read_back
from harness import until
from harness.host import PROXY, TRAIN, VENV, Host

# Inside the machine: asks the page some times, and prints what came back as JSON.
ASK = """
import http.client, json, sys, time
token, path, method, body, times = sys.argv[1:6]
found = []
for _ in range(int(times)):
    connection = http.client.HTTPConnection("127.0.0.1", 8470, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    found.append([answer.status, answer.read().decode()])
    connection.close()
    time.sleep(0.1)
print(json.dumps(found))
"""


def ask(host: Host, token: str, path: str, body: dict[str, Any] | None = None, times: int = 1) -> list[Any]:
    method, text = ("GET", "") if body is None else ("POST", json.dumps(body))
    answers: list[Any] = json.loads(
        host.run(VENV / "bin/python", "-c", ASK, token, path, method, text, str(times)).stdout
    )
    return answers


def test_the_page_through_the_socket(host: Host) -> None:
    """Figures, a checkpoint and a stop, as the user of the services; no request is lost while the proxy restarts."""
    run = host.make(checkpoint={"every": 10_000}, probe={"every": 10_000})  # none by the cadence
    host.start()
    token = json.loads(host.andrea("url", run.root.name, "--json"))["url"].rpartition("token=")[2]
    [[status, text]] = ask(host, token, "/api/run")
    found = json.loads(text)
    assert status == 200 and found["state"] == "running" and found["ours"] and found["memory"] > 50_000_000, found
    shown = {"run": found["id"], "process": found["process"]}
    assert ask(host, "wrong", "/api/run")[0][0] == 401

    [[status, text]] = ask(host, token, "/api/checkpoint", shown)
    assert status == 202, text
    until("the checkpoint is there", lambda: any(e.get("reason") == "signal" for e in read_back(run.events)))

    host.systemctl("restart", "--no-block", PROXY)
    answers = ask(host, token, "/", times=15)
    host.systemctl("restart", "--no-block", PROXY)
    answers += ask(host, token, "/healthz", times=15)
    assert {status for status, _ in answers} == {200} and len(answers) == 30

    [[status, text]] = ask(host, token, "/api/stop", shown | {"name": found["name"]})
    assert status == 202, text
    assert host.until_state(TRAIN, lambda state: state[0] == "inactive") == ("inactive", "success")
    said = host.run("journalctl", "-u", PROXY, "ANDREA_EVENT=action", "-o", "cat", "--no-pager").stdout
    assert "checkpoint was asked for" in said and "stop was asked for" in said and token not in said
