#!/usr/bin/env python3
"""A complete agent that needs only Python 3.9 or newer. It handles echo, which returns its payload, and sleep.

HUB=http://127.0.0.1:8080 CLUSTER=default ID=py-1 python3 agent.py     (docs/AGENT-PROTOCOL.md describes the messages)
mainstay task submit --type sleep --payload '{"seconds": 60}'               gives it something to do
MAINSTAY_JOIN_TOKEN has the token to register with, where the hub wants one.
"""
import http.client, json, math, os, re, signal, sys, threading, time, urllib.parse, uuid
from datetime import datetime, timezone


class Stopped(Exception):
    """A handler raises it when it has stopped because its attempt's stop event was set."""


def sleep(payload, stop):
    if stop.wait(payload["seconds"]):
        raise Stopped
    return "slept"


HUB, AGENT, SLOTS = urllib.parse.urlsplit(os.environ["HUB"]), os.environ["ID"], 4
HANDLERS = {"echo": lambda payload, stop: payload, "sleep": sleep}
me = {"agent_id": AGENT, "instance_id": uuid.uuid4().hex, "cluster": os.environ["CLUSTER"], "max_tasks": SLOTS, "task_types": list(HANDLERS),
      "bundles": True}
running = {}  # (task, attempt) → Attempt
session, sequence, answered, lease, renewed, lease_ends = "", 0, 0, "", 0.0, math.inf


class Number(float):
    """A number as it was written: a handler that only passes it on changes no digit, as of 1.10 or 1e400."""

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number


def decode(text):
    return json.loads(text, parse_float=Number, parse_int=lambda n: int(n) if n != "-0" and len(n) < 4000 else Number(n))


def encode(value):
    """Raises ValueError or TypeError for what JSON cannot hold, as NaN or an object."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join((json.dumps(k) if isinstance(k, str) else json.dumps(encode(k))) + ":" + encode(v) for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value, allow_nan=False)


class Attempt:
    def __init__(self, task):
        self.task, self.stop, self.why = task, threading.Event(), ""
        self.listed = {"task_id": task["task_id"], "attempt": task["attempt"], "token": task["token"]}
        self.begin()

    def begin(self):
        """Begins the time that the task, or one element of a bundle, may take."""
        self.deadline = time.monotonic() + seconds(self.task.get("timeout", "24h"))
        if self.why == "timeout":  # the element before took too long
            self.why, self.stop = "", threading.Event()

    def end(self, why):
        """Asks the handler to stop: cancel, drop, timeout, lease or stop."""
        self.why = self.why or why
        self.stop.set()


def seconds(duration):
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([0-9.]+)(ms|us|µs|ns|h|m|s)", duration))


def connect(timeout=30):
    kind = http.client.HTTPSConnection if HUB.scheme == "https" else http.client.HTTPConnection
    return kind(HUB.hostname, HUB.port, timeout=timeout)


def ask(connection, path, body, method="POST"):
    """Returns the status and the answer; status 0 means that no hub answered."""
    token = os.environ.get("MAINSTAY_JOIN_TOKEN", "") if path == "register" else session
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    try:
        connection.request(method, "/api/v1/agents/" + path, body and encode(body), headers)
        response = connection.getresponse()
        return response.status, decode(response.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()  # the next request opens it again
        return 0, {}


def run(attempt, payload):
    """Runs the handler, and returns how it ended."""
    try:
        output = HANDLERS[attempt.task["type"]](payload, attempt.stop)
    except Stopped:
        if attempt.why == "timeout":
            return {"outcome": "timed_out", "error": "it ran too long", "error_type": "timeout"}
        return {"outcome": "cancelled"}  # without a cancel command it hands the work back
    except BaseException as error:  # also sys.exit: the thread must report
        return failed(reason(error))
    try:
        encode(output)
    except BaseException as error:  # to run it again would end the same way
        return failed("what the handler returned is no JSON: " + reason(error), non_retryable=True)
    return {"outcome": "completed", "output": output}


def reason(error):
    try:
        return repr(error)
    except BaseException:  # the handler's own class
        return type(error).__name__


def failed(why, **more):
    return {"outcome": "failed", "error": why[:8000], **more}


def run_bundle(attempt):
    """Runs the handler for one element after another. Those that it does not list come back in another bundle."""
    done, began = [], time.monotonic()
    for element in attempt.task["elements"]:
        attempt.begin()
        since = time.monotonic()
        ended = run(attempt, element.get("payload"))
        if ended["outcome"] == "cancelled":
            break
        done.append({"n": element["n"], "ms": int(1000 * (time.monotonic() - since)), **ended})
        if time.monotonic() - began > 2:
            break  # what is not reported runs again when this agent is lost
    return {"outcome": "completed", "elements": done} if done else {"outcome": "cancelled"}


def work(key, attempt):
    def now():
        return datetime.now(timezone.utc).isoformat()

    task = attempt.task
    result = {"token": task["token"], "attempt": task["attempt"], "started_at": now()}
    result.update(run_bundle(attempt) if "elements" in task else run(attempt, task.get("payload")))
    if attempt.why == "lease":  # another may have it
        result = {k: v for k, v in result.items() if k not in ("output", "elements")} | {"outcome": "cancelled"}
    result["ended_at"], connection, pause, refused = now(), connect(), 0.1, 0
    while attempt.why != "drop" and refused < 5:
        status, answer = ask(connection, f"{AGENT}/tasks/{task['task_id']}/result", result)
        if status in (400, 413, 422) and result["outcome"] == "completed":  # too large, as a rule
            told = {k: v for k, v in result.items() if k not in ("output", "elements")}
            result = {**told, **failed("the hub refused the result: " + str(answer.get("detail")), non_retryable=True)}
            continue
        if 200 <= status < 500 and status not in (401, 408, 429):
            break
        refused += status == 401  # the session's token: there is a new one soon
        time.sleep(pause)  # no hub, or it cannot reach Temporal: the result must not be lost
        pause = min(2 * pause, 5)
    connection.close()
    del running[key]


def watch():
    """Ends attempts that run too long, and fenced ones when the lease has run out."""
    while True:
        time.sleep(0.1)
        now = time.monotonic()
        for attempt in list(running.values()):
            if now > attempt.deadline:
                attempt.end("timeout")
            if attempt.task.get("retry_safety") == "fenced" and now > lease_ends:
                attempt.end("lease")


def poll(connection, **more):
    global sequence, answered, lease, renewed, lease_ends
    sequence, sent = sequence + 1, time.monotonic()
    body = {"sequence": sequence, "answered": answered, "running": [a.listed for a in list(running.values())], "lease": lease, **more}
    status, answer = ask(connection, AGENT + "/poll", body)
    if status == 200:
        answered = sequence
        if not answer.get("lease_held"):
            lease, renewed = answer.get("lease", lease), sent
            lease_ends = renewed + seconds(lease)
    return status, answer


def obey(answer):
    for task in answer.get("assignments", []):
        key = (task["task_id"], task["attempt"])
        if key not in running:  # it may be delivered twice; the next poll lists it, which accepts it
            running[key] = Attempt(task)
            threading.Thread(target=work, args=(key, running[key]), daemon=True).start()
    for command in answer.get("commands", []):
        attempt = running.get((command.get("task_id"), command.get("attempt")))
        if attempt and command["type"] in ("cancel", "drop"):
            attempt.end(command["type"])


def serve():
    global session, lease, renewed, lease_ends
    polls = connect()  # one connection, kept open: when this process dies the hub sees it close
    while True:
        if not session:
            sent = time.monotonic()
            status, answer = ask(polls, "register", dict(me, running=[a.listed for a in list(running.values())]))
            session = answer.get("session_token", "")
            if session:
                lease, renewed = answer["lease"], renewed or sent  # registering again renews nothing
                lease_ends = min(lease_ends, renewed + seconds(lease))
        else:
            status, answer = poll(polls)
            obey(answer)
        if answer.get("code") in ("fenced", "session_revoked"):
            print("this process may not go on:", answer["code"], file=sys.stderr)
            os._exit(1)  # with all of its work, and without a goodbye
        if status in (401, 409):  # unknown_session: the hub was restarted; register again, running work goes on
            session = ""
        if status != 200:
            print("no use of the hub:", status, answer.get("detail", ""), file=sys.stderr)
            time.sleep(0.2)


def goodbye():
    """Hands back what runs, and promises that nothing of this agent runs any more."""
    for attempt in list(running.values()):
        attempt.end("stop")
    until = time.monotonic() + 10
    while running and time.monotonic() < until:
        time.sleep(0.02)
    if session and not running:
        poll(connect(timeout=0.5), stopping=True)
        ask(connect(timeout=5), AGENT + "/session", None, "DELETE")


for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit())
threading.Thread(target=watch, daemon=True).start()
try:
    serve()
finally:
    goodbye()
