// Addresses: those of views (#/view/id?name=value), and parts of those of the API.

export const base = "/api/v1/agents";

export const seg = encodeURIComponent;

const keyName = "mainstay-session-key";

/** keepKey keeps the key of a session. */
export function keepKey(key) {
  try {
    localStorage.setItem(keyName, key);
  } catch {
    throw new Error("This browser keeps nothing for this page, and a session needs that: allow storage for it.");
  }
}

/** proof is the header without which the session's cookie is worth nothing. Each port has storage of its own. */
export function proof() {
  try {
    const key = localStorage.getItem(keyName);
    return key ? { "X-Mainstay-Session-Key": key } : {};
  } catch {
    return {};
  }
}

/** query makes ?a=b of what is set. */
export function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) q.append(name, value);
  const text = q.toString();
  return text ? "?" + text : "";
}

/** route reads the address of a view; without an id it is one of a list. */
export function route(hash) {
  const [path, search] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/"), params = Object.fromEntries(new URLSearchParams(search ?? ""));
  const id = decoded(rest.join("/"));
  return { name, id, params: id ? { ...params, id } : params };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed it
  }
}
