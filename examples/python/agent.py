#!/usr/bin/env python3
"""An agent that needs only Python 3.9 or newer. It handles tasks of the type echo by returning their payload.

HUB=http://127.0.0.1:8080 CLUSTER=default ID=py-1 python3 agent.py     (docs/AGENT-PROTOCOL.md describes the messages)
mainstay task submit --type echo --payload '{"a": 1}' --wait                 gives it something to do
MAINSTAY_JOIN_TOKEN has the token to register with, where the hub wants one.
"""
import http.client, json, os, sys, threading, time, urllib.parse, uuid
from datetime import datetime, timezone

HUB, AGENT, SLOTS = urllib.parse.urlsplit(os.environ["HUB"]), os.environ["ID"], 4
HANDLERS = {"echo": lambda payload: payload}
me = {"agent_id": AGENT, "instance_id": uuid.uuid4().hex, "cluster": os.environ["CLUSTER"], "max_tasks": SLOTS, "task_types": list(HANDLERS)}
running, session, sequence, answered = {}, "", 0, 0  # running: (task, attempt) → what polls say of it


def connect():
    kind = http.client.HTTPSConnection if HUB.scheme == "https" else http.client.HTTPConnection
    return kind(HUB.hostname, HUB.port, timeout=30)


def post(connection, path, body):
    """Returns the status and the answer; status 0 means that no hub answered."""
    token = os.environ.get("MAINSTAY_JOIN_TOKEN", "") if path == "register" else session
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    try:
        connection.request("POST", "/api/v1/agents/" + path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()  # the next request opens it again
        return 0, {}


def work(key, task):
    def now():
        return datetime.now(timezone.utc).isoformat()

    result = {"token": task["token"], "attempt": task["attempt"], "started_at": now()}
    try:
        result.update(outcome="completed", output=HANDLERS[task["type"]](task.get("payload")))
    except Exception as error:
        result.update(outcome="failed", error=repr(error)[:8000])
    result["ended_at"], connection = now(), connect()
    while not 200 <= post(connection, f"{AGENT}/tasks/{task['task_id']}/result", result)[0] < 500:
        time.sleep(1)  # no hub, or it cannot reach Temporal: the result must not be lost
    connection.close()
    del running[key]


polls = connect()  # one connection, kept open: when this process dies the hub sees it close
while True:
    if not session:
        status, answer = post(polls, "register", dict(me, running=list(running.values())))
        session = answer.get("session_token", "")
    else:
        sequence += 1
        status, answer = post(polls, AGENT + "/poll", {"sequence": sequence, "answered": answered, "running": list(running.values())})
        if status == 200:
            answered = sequence
        for task in answer.get("assignments", []):
            key = (task["task_id"], task["attempt"])
            if key not in running:  # it may be delivered twice; the next poll lists it, which accepts it
                running[key] = {"task_id": key[0], "attempt": key[1], "token": task["token"]}
                threading.Thread(target=work, args=(key, task), daemon=True).start()
    if answer.get("code") == "fenced":
        sys.exit("a newer process has this agent id")
    if status in (401, 409):  # unknown_session: the hub was restarted; register again, running work goes on
        session = ""
    if status != 200:
        print("no use of the hub:", status, answer.get("detail", ""), file=sys.stderr)
        time.sleep(0.2)
