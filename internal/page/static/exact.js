// JSON whose numbers keep their digits.

/** Exact is a number of JSON that a number of JavaScript is not digit for digit, as 9007199254740993 or 1.10. It counts as
the number next to it, and is shown and sent as it came. */
class Exact extends Number {
  constructor(source) {
    super(source);
    this.source = source;
  }
  toString() {
    return this.source;
  }
}

const mark = `number ${Math.random().toString(36).slice(2)} `; // no text begins with it
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const marked = new RegExp(`"${mark}([^"]*)"`, "g");

/** decode reads JSON. */
export function decode(text) {
  let found = false;
  const changed = text.replace(tokens, (token) => {
    if (token[0] === '"' || String(Number(token)) === token) return token;
    found = true;
    return `"${mark}${token}"`;
  });
  if (!found) return JSON.parse(text);
  return JSON.parse(changed, (_, value) => typeof value === "string" && value.startsWith(mark) ? new Exact(value.slice(mark.length)) : value);
}

/** encode writes JSON, indented by so many blanks. */
export function encode(value, indent) {
  return JSON.stringify(value, (_, item) => item instanceof Exact ? mark + item.source : item, indent)?.replace(marked, "$1");
}
