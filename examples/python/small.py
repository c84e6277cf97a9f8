#!/usr/bin/env python3
"""An agent in thirty lines of Python 3. It handles echo, which returns its payload. (docs/AGENT-PROTOCOL.md)

HUB=http://127.0.0.1:8080 CLUSTER=default ID=small-1 python3 small.py
It leaves out timeouts, the commands cancel and drop, leases, checkpoints and the goodbye: give it idempotent work that
ends by itself. A number such as 1.10 becomes Python's 1.1. agent.py has all of these, and keeps numbers digit for digit.
"""
import http.client, json, os, sys, threading, time, urllib.parse, uuid

HUB, AGENT, JOIN = urllib.parse.urlsplit(os.environ["HUB"]), os.environ["ID"], os.environ.get("MAINSTAY_JOIN_TOKEN", "")
me = {"agent_id": AGENT, "instance_id": uuid.uuid4().hex, "cluster": os.environ["CLUSTER"], "max_tasks": 4, "task_types": ["echo"]}
running, registered, session, sequence = {}, False, "", 0


def post(path, body, token):
    try:
        hub = (http.client.HTTPSConnection if HUB.scheme == "https" else http.client.HTTPConnection)(HUB.netloc, timeout=30)
        hub.request("POST", "/api/v1/agents/" + path, json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer " + token})
        answer = hub.getresponse()
        return answer.status, json.load(answer)
    except (OSError, ValueError, http.client.HTTPException):
        return 0, {}  # no hub answered


def work(key, task):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = {"token": task["token"], "attempt": task["attempt"], "outcome": "completed", "output": task.get("payload"), "started_at": now, "ended_at": now}
    while (status := post(f"{AGENT}/tasks/{task['task_id']}/result", result, session)[0]) in (408, 429) or not 200 <= status < 500:
        time.sleep(0.5)  # until a hub has taken or refused it
    del running[key]


while True:
    sequence, listed = sequence + 1, list(running.values())  # listing it accepts a task, and keeps it
    status, answer = (post(AGENT + "/poll", {"sequence": sequence, "running": listed}, session) if registered
                      else post("register", {**me, "running": listed}, JOIN))
    if status == 200:
        registered, session = True, answer.get("session_token", session)
        for task in answer.get("assignments", []):
            key = (task["task_id"], task["attempt"])
            if key not in running:  # it may arrive twice
                running[key] = {"task_id": task["task_id"], "attempt": task["attempt"], "token": task["token"]}
                threading.Thread(target=work, args=(key, task), daemon=True).start()
        continue
    if answer.get("code") in ("fenced", "session_revoked"):
        sys.exit("this process may not go on: " + answer["code"])
    registered = registered and status not in (401, 409)  # then register again: what runs goes on
    time.sleep(0.2)
