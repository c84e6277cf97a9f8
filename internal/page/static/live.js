// The stream of events. It tells what changed; what is shown is always read from the API. fetch is used and not
// EventSource, because it tells why it failed, and goes on where another stream ended.

import { proof } from "./address.js";

const retryFirst = 1000, retryLast = 15000; // ms
const silence = 45000; // ms without a word, not even a comment, after which the stream counts as lost

let lastID = ""; // of the event that came last, whatever stream it was on

/** follow reads events until stop() is called. on: {event(data), state(up, status)}. */
export function follow(url, on) {
  let stopped = false, wait = retryFirst, controller;
  (async () => {
    while (!stopped) {
      let status = 0;
      controller = new AbortController();
      let watchdog;
      const alive = () => {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => controller.abort(), silence);
      };
      try {
        alive();
        const headers = { ...proof(), Accept: "text/event-stream" };
        if (lastID) headers["Last-Event-ID"] = lastID;
        const response = await fetch(url, { headers, signal: controller.signal, credentials: "same-origin", cache: "no-store" });
        status = response.status;
        if (stopped) return;
        if (response.ok && response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
          on.state(true, status);
          wait = retryFirst;
          await read(response.body, alive, (event) => {
            if (event.id !== undefined) lastID = event.id;
            if (event.data && !stopped) on.event(event.data);
          });
        }
      } catch { /* lost: tried again below */ }
      clearTimeout(watchdog);
      if (stopped) return;
      on.state(false, status);
      await new Promise((go) => setTimeout(go, wait * (0.75 + Math.random() / 2)));
      wait = Math.min(wait * 2, retryLast);
    }
  })();
  return () => {
    stopped = true;
    controller?.abort();
  };
}

async function read(body, alive, emit) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) emit(parse(block));
  }
}

function parse(block) {
  const event = { data: "" };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment: the stream lives
    const name = colon < 0 ? line : line.slice(0, colon), value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") event.id = value;
    else if (name === "data") event.data += (event.data && "\n") + value;
  }
  return event;
}
