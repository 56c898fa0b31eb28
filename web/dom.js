// SPDX-License-Identifier: Apache-2.0
// Builds elements, and brings those of the page up to date. Every text is a text node, so no name can become markup.

const HANDLERS = ["onclick", "oninput", "ontoggle"];
const STYLES = ["width", "backgroundColor"]; // set by scripts

// make("td", {class: "x"}, "text", child, ...); a handler is a function, onclick for example.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A table that scrolls by itself where it is too wide; a keyboard reaches it, for it has no buttons.
export function makeTable(caption, heads, rows) {
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption }, make("table", {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell ?? "–")))))));
}

const SVG = "http://www.w3.org/2000/svg";

// A small plot of the last `spanMs`, from 0 to the largest value, with the last value as text.
export function makePlot(title, points, key, spanMs, wordFor) {
  const width = 120;
  const height = 28;
  const most = Math.max(0, ...points.map((point) => point[key]));
  const last = points.at(-1);
  const svg = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "polyline");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}: ${wordFor(last[key])} now, ${wordFor(most)} at most in the last minute`);
  line.setAttribute("points", points.map((point) =>
    `${(width * (1 - (last.at - point.at) / spanMs)).toFixed(1)},` +
    `${(height - 1 - ((height - 2) * point[key]) / (most || 1)).toFixed(1)}`).join(" "));
  svg.append(line);
  return make("figure", { class: "plot" }, make("figcaption", {}, `${title} `, make("b", {}, wordFor(last[key]))), svg);
}

function updateNode(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // The policy allows styles from scripts, and none as attributes.
  for (const { name } of [...old.attributes]) if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of STYLES) if (old.style[name] !== fresh.style[name]) old.style[name] = fresh.style[name];
  for (const name of HANDLERS) old[name] = fresh[name];
  updateChildren(old, [...fresh.childNodes]);
}

// An element with an id goes on as the one of this id, another one as the one at its place.
function updateChildren(old, fresh) {
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = old.firstChild;
  for (const child of fresh) {
    const match = child.id ? known.get(child.id) : at && !at.id && at.nodeName === child.nodeName ? at : null;
    if (match && match === at) at = at.nextSibling;
    else old.insertBefore(match ?? child, at);
    if (match) updateNode(match, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// Makes the children of `element` like these. Elements that stay keep the focus, their scroll and what is selected.
export function update(element, ...children) {
  const focused = document.activeElement?.id;
  updateChildren(element, children.filter((child) => child));
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}
