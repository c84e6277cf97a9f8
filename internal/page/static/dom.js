// Elements are made with h() and svg(), and what is shown is changed with patch(), which keeps focus, scroll positions
// and open parts. Text is only ever set as text: nothing here can turn data into markup.

const svgNS = "http://www.w3.org/2000/svg";

function dispatch(event) {
  this.__on?.[event.type]?.call(this, event);
}

function setHandlers(node, handlers) {
  node.__on = handlers;
  node.__listens ??= new Set();
  for (const type of Object.keys(handlers ?? {})) {
    if (node.__listens.has(type)) continue;
    node.__listens.add(type);
    node.addEventListener(type, dispatch);
  }
}

function make(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") setHandlers(node, value);
    else if (name === "key") node.__key = String(value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false || child === "") continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

/** h makes an element: h("td.num", {title: "…"}, "text", child). */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name || "div");
  if (classes.length) node.className = classes.join(" ");
  return make(node, props, children);
}

/** svg makes an element of a drawing. */
export function svg(name, props, ...children) {
  return make(document.createElementNS(svgNS, name), props, children);
}

/** patch makes the children of parent look like nodes, and keeps the elements that are alike. */
export function patch(parent, nodes) {
  const keyed = new Map(), plain = [];
  for (const node of parent.childNodes) {
    if (node.__key !== undefined) keyed.set(node.__key, node);
    else plain.push(node);
  }
  let at = parent.firstChild, next = 0;
  for (const node of nodes) {
    let same;
    if (node.__key !== undefined) {
      same = keyed.get(node.__key);
      if (same && alike(same, node)) keyed.delete(node.__key);
      else same = undefined;
    } else if (next < plain.length && alike(plain[next], node)) {
      same = plain[next++];
    }
    const placed = same ?? node;
    if (same) morph(same, node);
    if (placed === at) at = at.nextSibling;
    else parent.insertBefore(placed, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function alike(a, b) {
  return a.nodeName === b.nodeName && a.namespaceURI === b.namespaceURI && a.__key === b.__key && a.id === b.id;
}

function morph(old, node) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!node.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of node.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  setHandlers(old, node.__on);
  if (old.nodeName === "TEXTAREA") return;
  patch(old, [...node.childNodes]);
}
