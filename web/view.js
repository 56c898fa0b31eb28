// SPDX-License-Identifier: Apache-2.0
// Draws mounts and stores.

import { make, makePlot, makeTable } from "./dom.js";
import { adviceFor } from "./look.js";
import { directionOf, HISTORY_MS, holdersOf, makePlacement, sortStores, sumTags, tiersOf } from "./model.js";
import { countText, durationText, nameText, sizeText } from "./text.js";

export const ROWS = 50; // rows of a table at first; a button shows as many again
const HUES = 6;
const LABEL_PERCENT = 4; // a narrower area has no room for a name

// See gmsfs-web(8), CLIENTS.
const NOT_TRUSTED = "Not shown here: events, holders and waiters by name, for they tell users and processes. The server shows them on its " +
  "own machine, and where it asks clients for a certificate (--tls-client-ca).";

// A store keeps its hue, whatever stands beside it.
function hueOf(name) {
  let sum = 0;
  for (const char of name) sum = (sum * 31 + char.codePointAt(0)) % 9973;
  return `hue${sum % HUES}`;
}

const idOf = (...parts) => parts.map(encodeURIComponent).join("/");
const makeName = (name) => make("span", { class: "name" }, nameText(name));

// ---- a bar --------------------------------------------------------------------------------------

function makeArea(area, total, openStore) {
  const percent = (100 * area.bytes) / total;
  const text = `${nameText(area.name)}, ${sizeText(area.bytes)}`;
  const isStore = area.kind === "store";
  const element = make(isStore ? "button" : "div", {
    type: isStore ? "button" : null,
    class: `area ${isStore ? hueOf(area.name) : area.kind}${percent < LABEL_PERCENT ? " narrow" : ""}`,
    title: text,
    "aria-label": isStore ? text : null,
    "data-kind": area.kind,
    "data-bytes": area.bytes,
    "data-store": isStore ? area.name : null,
    // Every store is in the table, so a keyboard need not pass all areas.
    tabindex: isStore ? -1 : null,
    onclick: isStore ? () => openStore(area.name) : null,
  }, percent < LABEL_PERCENT ? "" : nameText(area.name));
  element.style.setProperty("width", `${percent}%`);
  return element;
}

function makeBar(bar, openStore) {
  const free = bar.areas.find((area) => area.kind === "free")?.bytes ?? 0;
  return make("div", { class: "bar", "data-tier": bar.tier, "data-total": bar.total, "data-used": bar.used },
    make("div", {}, make("b", {}, bar.tier), ` ${sizeText(bar.used)} of ${sizeText(bar.total)} used, ${sizeText(free)} free`),
    make("div", { class: "areas", role: "group", "aria-label": `memory of the tier ${bar.tier}, to scale` },
      ...bar.areas.map((area) => makeArea(area, bar.total, openStore))));
}

// ---- a mount ------------------------------------------------------------------------------------

function stateText(store) {
  const words = [store.state];
  if (store.suspect) words.push("suspect");
  if (store.draining) words.push(holdersOf(store) ? "draining" : "drained");
  return words.join(", ");
}

function makeMoving(moving) {
  if (!moving) return null;
  const text = `to ${moving.to}, ${sizeText(moving.done)} of ${sizeText(moving.all)}` +
    (moving.rate ? `, ${sizeText(moving.rate)}/s` : "");
  return make("div", {},
    make("progress", { max: moving.all || 1, value: moving.done, "aria-label": `move ${text}` }), ` ${text}`);
}

const COLUMNS = [
  ["name", "Store"], ["state", "State"], ["bytes", "Bytes"], [null, "Place"], ["holders", "Holders"],
  ["waiters", "Waiters"], ["used", "Last used"],
];

function makeStoresTable(mount, page, filter) {
  const wanted = filter.toLowerCase();
  const found = mount.stores.filter((store) => store.name.toLowerCase().includes(wanted));
  const sorted = sortStores(found, page.order, page.backwards);
  const shown = sorted.slice(0, page.rows);
  const now = Date.now() / 1000;
  mount.shown = shown;
  const head = ([order, text]) => make("th", {
    scope: "col",
    class: order === "used" ? "wide" : null,
    "aria-sort": order && page.order === order ? directionOf(order, page.backwards) : null,
  }, order ? make("button", { type: "button", id: `sort-${mount.name}-${order}`, onclick: () => page.sortBy(order) }, text) : text);
  const row = (store) => make("tr", { id: idOf("row", mount.name, store.name), "data-store": store.name },
    make("td", {}, make("button", { type: "button", id: idOf("store", mount.name, store.name), onclick: () => page.openStore(store.name) },
      makeName(store.name))),
    make("td", { "data-state": store.state, class: store.suspect ? "alarm" : null }, stateText(store)),
    make("td", { "data-bytes": store.bytes }, sizeText(store.bytes)),
    make("td", {}, tiersOf(store).join(" ") || "–", makeMoving(mount.moves.get(store.name))),
    make("td", {}, store.state === "RW" ? "1 writer" : String(holdersOf(store))),
    make("td", {}, store.waiters ? `${store.waiters}, the oldest since ${durationText(store.waitSeconds)}` : "0"),
    make("td", { class: "wide" }, store.readers || store.state === "RW" ? "now"
      : store.usedAt ? `${durationText(now - store.usedAt)} ago` : "–"));
  return make("div", { class: "scroll" },
    make("table", {},
      make("caption", {}, `${countText(found.length, "store")}${filter ? " found" : ""}` +
        (shown.length < found.length ? `, ${shown.length} shown` : "")),
      make("thead", {}, make("tr", {}, ...COLUMNS.map(head))),
      make("tbody", {}, ...shown.map(row))),
    shown.length < found.length
      ? make("button", { type: "button", id: `more-${mount.name}`, onclick: page.showMore }, "Show more") : null);
}

function makePools(mount) {
  if (mount.pools.length < 2 && mount.pools.every((pool) => pool.max === "max")) return null;
  return makeTable("pools", ["Pool", "Class", "Used", "Kept for it", "At most", "Stores"],
    mount.pools.map((pool) => [makeName(pool.name), pool.class, sizeText(pool.used), sizeText(pool.min),
      pool.max === "max" ? "no limit" : sizeText(pool.max), String(pool.stores)]));
}

function makeEvents(mount, page) {
  const details = make("details", { open: page.eventsOpen, ontoggle: (event) => (page.eventsOpen = event.target.open) },
    make("summary", { id: `events-${mount.name}` }, "Events"));
  if (!mount.trusted)
    details.append(make("p", { class: "soft" }, NOT_TRUSTED));
  else
    details.append(make("ol", { class: "events", tabindex: 0, "aria-label": "events, the newest first" },
      ...mount.events.slice(-100).reverse().map((event) => {
        const { time_ms, event: what, store, seq, ...rest } = event;
        const words = Object.entries(rest).filter(([, value]) => value !== 0 && value !== "").map(([key, value]) => `${key}=${value}`);
        return make("li", {}, `${new Date(time_ms).toISOString().slice(11, 23)} ${what} `, makeName(String(store ?? "")),
          ` ${nameText(words.join(" "))}`);
      })));
  return details;
}

function makePlots(mount) {
  const plot = (title, key, wordFor) => makePlot(title, mount.history.points, key, HISTORY_MS, wordFor);
  const rate = (value) => `${sizeText(value)}/s`;
  const whole = (value) => String(Math.round(value));
  return make("div", { class: "plots" },
    plot("Used", "used", sizeText), plot("Holders", "holders", whole), plot("Waiters", "waiters", whole),
    plot("Grants a second", "grants", whole), plot("Read", "read", rate), plot("Moved", "moved", rate));
}

function makeFacts(mount) {
  const { device } = mount;
  const graphs = mount.stores.filter((store) => store.graph).length;
  const facts = [device.name, device.backend === "host" ? null : device.pci_id, `gmsfs ${device.version}`];
  if (device.regions) facts.push(countText(device.regions, "region"));
  if (graphs) facts.push(countText(graphs, "graph pool"));
  if (device.recoveries) facts.push(`${countText(device.recoveries, "worker")} replaced`);
  const pauseMs = Math.max(mount.pauseMs, mount.storesPauseMs);
  if (pauseMs > 2000) facts.push(`looked at every ${durationText(pauseMs / 1000)}`);
  return facts.filter((fact) => fact).map(nameText).join(" · ");
}

// The parts of an alert stay alike while it lasts, so that it is read out once.
function makeTrouble(mount) {
  if (!mount.trouble) return null;
  return make("div", { class: "trouble", id: idOf("trouble", mount.name) },
    make("div", { role: "alert" },
      make("p", { class: "alarm" }, `${mount.name}: ${mount.trouble.message}`), make("p", {}, adviceFor(mount.trouble))),
    mount.answered
      ? make("p", { class: "soft" }, `What is below is ${durationText((Date.now() - mount.answered) / 1000)} old.`) : null);
}

// Draws a mount; `page` has its order, rows and filter, and what its buttons do.
export function makeMount(mount, page, filter) {
  const { device } = mount;
  const parts = [make("div", { class: "title" }, make("h2", {}, makeName(mount.name)),
    mount.answered ? make("span", { class: "soft" }, makeFacts(mount)) : null,
    device && device.health !== "ok"
      ? make("span", { class: "alarm" }, `the device is ${device.health}: ${nameText(device.health_reason ?? "")}`) : null,
    device?.draining ? make("span", { class: "alarm" }, "drained: no client gets a lock") : null,
    device?.fenced ? make("span", { class: "alarm" }, "fenced") : null), makeTrouble(mount)];
  if (mount.answered)
    parts.push(make("div", { id: idOf("body", mount.name), class: mount.trouble ? "stale" : null },
      ...mount.bars.map((bar) => makeBar(bar, page.openStore)), makePlots(mount), makePools(mount),
      makeStoresTable(mount, page, filter), makeEvents(mount, page)));
  else if (!mount.trouble) parts.push(make("p", { class: "soft" }, "asking …"));
  return parts;
}

// ---- models on several mounts -------------------------------------------------------------------

const SAME = { group: "one load (group)", contents: "same contents", name: "same name" };

export function makePlacementTable(mounts) {
  const models = makePlacement(mounts).slice(0, 200);
  if (!models.length) return [];
  const names = mounts.map((mount) => mount.name);
  const cellOf = (places, mount) => places.filter((place) => place.mount === mount).map(({ store }) =>
    make("div", {}, places.some((place) => place.store.name !== store.name) ? makeName(store.name) : null,
      ` ${stateText(store)}, ${sizeText(store.bytes)}, ${tiersOf(store).join(" ") || "–"}`));
  return [make("h2", {}, "Models on several mounts"),
    makeTable("stores of one model, by its group, contents or name", ["Model", "Known by", ...names],
      models.map(({ name, by, differs, places }) => [makeName(name),
        make("span", { class: differs ? "alarm" : null, "data-by": by }, SAME[by] + (differs ? ", other load or contents" : "")),
        ...names.map((mount) => {
          const cells = cellOf(places, mount);
          return cells.length ? make("div", {}, ...cells) : "–";
        })]))];
}

// ---- one store ----------------------------------------------------------------------------------

const FACTS = [
  ["state", "State"], ["generation", "Generation"], ["layout_hash", "Layout hash"], ["contents_id", "Contents id"],
  ["residency", "Place"], ["pool", "Pool"], ["pinned", "Pinned"], ["immutable", "Immutable"], ["mappable", "Mappable"],
  ["suspect", "Suspect"], ["behind", "Waits behind"], ["group", "Group"], ["obstacle", "Does not move because"], ["last_error", "Last error"],
];

function factText(value) {
  if (value === null || value === undefined || value === "") return null;
  if (Array.isArray(value)) return value.join(" ") || null;
  if (typeof value === "object") return value.text ?? JSON.stringify(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

function makeFactList(facts) {
  const pairs = FACTS.map(([key, title]) => [title, factText(facts[key])]).filter(([, text]) => text !== null);
  return make("dl", {}, ...pairs.flatMap(([title, text]) => [make("dt", {}, title), make("dd", {}, nameText(text))]));
}

function makeSessions(sessions) {
  if (!sessions.length) return make("p", { class: "soft" }, "The lock is free and has no waiter.");
  return makeTable("holders and waiters of the lock", ["", "Mode", "Process", "User", "Since"],
    sessions.map((one) => [one.waits ? "waits" : "holds", one.mode, nameText(`${one.command} (${one.pid})`), one.uid, one.since]));
}

function makeLayoutParts(layout, page) {
  const all = layout.allocations.reduce((sum, one) => sum + one.aligned, 0);
  const tags = sumTags(layout.allocations);
  const wanted = page.entryFilter.toLowerCase();
  const entries = layout.entries.filter((entry) => entry.key.toLowerCase().includes(wanted));
  const bar = make("div", { class: "areas", role: "group", "aria-label": "memory by tag, to scale" },
    ...tags.slice(0, 40).map(({ tag, bytes }) => makeArea({ kind: "tag", name: tag || "no tag", bytes }, all || 1, null)));
  for (const [i, area] of [...bar.children].entries()) area.classList.add(`hue${i % HUES}`);
  return [make("h3", {}, `Layout: ${countText(layout.allocations.length, "allocation")}, ${countText(layout.entries.length, "entry", "entries")}`),
    make("div", { class: "bar" }, bar),
    makeTable("memory by tag", ["Tag", "Bytes"],
      tags.slice(0, 40).map(({ tag, bytes }) => [makeName(tag || "no tag"), sizeText(bytes)])),
    make("label", { for: "entry-filter" }, "Find an entry "),
    make("input", { id: "entry-filter", type: "search", value: page.entryFilter, oninput: (event) => page.filterEntries(event.target.value) }),
    makeTable(countText(entries.length, "entry", "entries") + (entries.length > 100 ? ", 100 shown" : ""),
      ["Key", "Allocation", "Offset", "Value"],
      entries.slice(0, 100).map((entry) => [makeName(entry.key), entry.rank === null ? "–" : String(entry.rank),
        entry.rank === null ? "–" : String(entry.offset), nameText(new TextDecoder().decode(entry.value.subarray(0, 200)))]))];
}

const PIECES_DRAWN = 400;

// The sums of pieces as a picture: an area for each, to scale, in the colour that its sum begins with.
function makeSums(page) {
  const ask = make("button", { type: "button", id: "ask-sums", onclick: page.askSums }, "Show the sums of its bytes");
  if (!page.sums)
    return [ask, make("span", { class: "soft" }, " Without sums at hand the daemon reads all bytes once, under a reader's lock.")];
  if (page.sums.text) return [ask, make("p", { class: "soft", role: "status" }, page.sums.text)];
  const { id, pieces } = page.sums;
  const drawn = pieces.slice(0, PIECES_DRAWN);
  const all = drawn.reduce((sum, piece) => sum + piece.bytes, 0);
  const areas = drawn.map((piece) => {
    const area = make("div", { class: "area", "data-sum": piece.sum,
      title: `${nameText(piece.name)}, piece at ${piece.offset}, ${sizeText(piece.bytes)}: ${piece.sum}` });
    area.style.width = `${(100 * piece.bytes) / all}%`;
    area.style.backgroundColor = `#${piece.sum.slice(0, 6)}`;
    return area;
  });
  return [make("h3", {}, `Sums: ${countText(pieces.length, "piece")}${drawn.length < pieces.length ? `, the first ${drawn.length} shown` : ""}`),
    make("div", { class: "bar" }, make("div", { class: "areas sums", role: "img",
      "aria-label": `sums of ${countText(drawn.length, "piece")}, to scale; the table has them` }, ...areas)),
    make("p", { class: "soft" }, `Contents id ${id}. Equal colours: equal first digits of the sums.`),
    makeTable("sums of pieces", ["Allocation", "Offset", "Bytes", "Sum"],
      drawn.slice(0, 100).map((piece) => [makeName(piece.name), String(piece.offset), sizeText(piece.bytes), piece.sum]))];
}

// Draws a store's own view out of what Mount.askStore() returned, and `store`, what the metrics tell of it.
export function makeStore(mount, name, store, found, page) {
  const parts = [make("div", { class: "title" }, make("h2", { id: "store-name" }, makeName(name)),
    make("button", { type: "button", id: "close", onclick: page.close }, "Close")),
    make("p", { class: "soft" }, `on ${mount.name}`)];
  for (const why of found.why) parts.push(make("p", { class: "alarm" }, nameText(why)));
  if (!found.info && !mount.trusted) parts.push(make("p", { class: "soft" }, NOT_TRUSTED));
  parts.push(makeFactList({ ...store, residency: found.residency?.tiers, layout_hash: found.layout_hash, ...found.info }));
  parts.push(makeMoving(found.residency?.moving));
  if (found.sessions) parts.push(makeSessions(found.sessions));
  if (found.layout) parts.push(...makeLayoutParts(found.layout, page));
  if (store?.state === "COMMITTED" || store?.state === "RO") parts.push(...makeSums(page));
  return parts;
}
