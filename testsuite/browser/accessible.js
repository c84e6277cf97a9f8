// Evaluates to the faults of the page that is shown: what a person without a mouse, eyes or a wide window would stumble on.
(() => {
  const faults = [], all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const visible = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true, contentVisibilityAuto: true }) && !e.closest(".sr, .skip");
  const where = (e) => e.outerHTML.slice(0, 120);
  const name = (e) => (e.getAttribute("aria-label") ?? "") || e.labels?.[0]?.innerText || e.textContent.trim() || e.title;
  const fault = (ok, text) => { if (!ok) faults.push(text); };

  fault(document.documentElement.lang, "the page has no language");
  fault(document.title.endsWith("Mainstay"), "the title does not say what this is: " + document.title);
  fault(all("h1").length === 1, `there are ${all("h1").length} first headings`);
  let level = 1;
  for (const e of all("main h1, main h2, main h3, main h4")) {
    const now = Number(e.nodeName[1]);
    fault(now <= level + 1, `heading ${e.innerText} skips a level`);
    level = now;
  }
  for (const landmark of ["header", "nav", "main"]) fault(document.querySelector(`body > ${landmark}, body > header > ${landmark}`), "there is no " + landmark);
  const ids = all("[id]").map((e) => e.id);
  for (const id of ids) fault(ids.indexOf(id) === ids.lastIndexOf(id), "two elements have the id " + id);
  for (const e of all("a, button, input, select, textarea, summary")) if (visible(e)) fault(name(e), "it has no name: " + where(e));
  for (const e of all("table")) fault(e.caption?.textContent, "the table has no caption: " + where(e));
  for (const e of all("th")) fault(e.scope, "the header has no scope: " + where(e));
  for (const e of all("svg, img")) fault(e.getAttribute("aria-hidden") || e.getAttribute("aria-label") || e.alt, "the drawing is neither named nor hidden: " + where(e));
  for (const e of all("nav")) fault(e.getAttribute("aria-label"), "the navigation has no name: " + where(e));
  for (const e of all("ul, ol")) for (const child of e.children) fault(child.nodeName === "LI", "the list has other children: " + where(child));
  for (const e of all("dl")) for (const child of e.children) fault(child.querySelector("dt") && child.querySelector("dd"), "the list of facts is not one: " + where(child));
  for (const e of all("time")) fault(!Number.isNaN(Date.parse(e.dateTime)), "the time is not one: " + where(e));
  for (const e of all("[tabindex]")) fault(Number(e.getAttribute("tabindex")) <= 0, "the order of focus is forced: " + where(e));
  for (const e of all("main *")) for (const text of e.childNodes) {
    fault(text.nodeType !== Node.TEXT_NODE || !/undefined|NaN|\[object|Invalid Date|\bnull\b/.test(text.data), "it shows what is no text: " + where(e));
  }

  fault(document.documentElement.scrollWidth <= innerWidth, `it is ${document.documentElement.scrollWidth} px wide in a window of ${innerWidth}`);
  for (const e of all("button, .button, #nav a, select, input:not([type=checkbox])")) {
    if (!visible(e)) continue;
    const box = e.getBoundingClientRect();
    fault(box.height >= 24 && box.width >= 24, `too small to touch, ${Math.round(box.width)} by ${Math.round(box.height)}: ${where(e)}`);
    fault(e.closest(".scroll") || box.right <= innerWidth + 1 && box.left >= -1, "beyond the edge: " + where(e));
  }

  // Contrast of text, WCAG AA.
  const rgb = (text) => {
    const n = text.match(/[\d.]+/g).map(Number), of = text.startsWith("color(") ? 1 : 255;
    return [n[0] / of, n[1] / of, n[2] / of, n[3] ?? 1];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => c.slice(0, 3).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (e) => {
    const layers = [];
    for (let x = e; x; x = x.parentElement) {
      layers.push(rgb(getComputedStyle(x).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((under, layer) => over(layer, under), [1, 1, 1, 1]);
  };
  const low = new Set();
  for (const e of all("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()) || !visible(e) || e.disabled || e.closest("option, script, noscript")) continue;
    const style = getComputedStyle(e), back = background(e), a = light(over(rgb(style.color), back)), b = light(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700;
    if (ratio < (large ? 3 : 4.5)) low.add(`contrast ${ratio.toFixed(2)} of ${style.color} on ${back.slice(0, 3).map((v) => Math.round(v * 255))}: ${where(e)}`);
  }
  return [...faults, ...low].slice(0, 12);
})()
