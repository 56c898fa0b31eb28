// SPDX-License-Identifier: Apache-2.0
// Makes what the page shows out of the texts of a mount. Pure.

import { findValue, sumValues } from "./text.js";

export const TIERS = ["device", "host", "disk"];
const STATES = "gmsfs_store_state";

// Returns the stores of `metrics`, by name.
export function makeStores(metrics) {
  const stores = new Map();
  for (const { labels, value } of metrics[STATES] ?? []) {
    const store = stores.get(labels.store) ?? newStore(labels.store);
    if (value) store.state = labels.state;
    stores.set(labels.store, store);
  }
  const set = (name, put) => {
    for (const { labels, value } of metrics[name] ?? []) {
      const store = stores.get(labels.store);
      if (store) put(store, value, labels);
    }
  };
  set("gmsfs_store_bytes", (store, value) => (store.bytes = value));
  set("gmsfs_store_allocations", (store, value) => (store.allocations = value));
  set("gmsfs_store_entries", (store, value) => (store.entries = value));
  set("gmsfs_store_generation", (store, value) => (store.generation = value));
  set("gmsfs_store_readers", (store, value) => (store.readers = value));
  set("gmsfs_store_waiters", (store, value) => (store.waiters = value));
  set("gmsfs_store_oldest_wait_seconds", (store, value) => (store.waitSeconds = value));
  set("gmsfs_store_suspect", (store, value) => (store.suspect = value === 1));
  set("gmsfs_store_draining", (store, value) => (store.draining = value === 1));
  set("gmsfs_store_last_used_seconds", (store, value) => (store.usedAt = value));
  set("gmsfs_store_graph_high_bytes", (store) => (store.graph = true));
  set("gmsfs_store_copy", (store, value, labels) => {
    if (value) store.tiers.push(labels.tier);
  });
  return [...stores.values()];
}

function newStore(name) {
  return {
    name, state: "?", bytes: 0, allocations: 0, entries: 0, generation: 0, readers: 0, waiters: 0, waitSeconds: 0,
    suspect: false, draining: false, usedAt: null, graph: false, tiers: [],
  };
}

// Returns the tiers whose memory has the store's bytes. A writer's and a sealed layout are on the device.
export function tiersOf(store) {
  const isUncommitted = store.state === "RW" || store.state === "LAYOUT_COMMITTED";
  return store.tiers.length === 0 && store.bytes > 0 && isUncommitted ? ["device"] : store.tiers;
}

// Returns the sessions that hold the store.
export const holdersOf = (store) => store.readers + (store.state === "RW" ? 1 : 0);

// Returns the bars of a mount: {tier, total, used, areas: [{kind, name, bytes}]}. The bytes of a bar's areas
// are its total; kinds are store, others (several small stores), rest, freeing, mapped, reserved, foreign, free.
export function makeBars(device, metrics, stores, most = 60) {
  return TIERS.map((tier) => makeBar(tier, device, metrics, stores, most)).filter((bar) => bar.total > 0);
}

function makeBar(tier, device, metrics, stores, most) {
  const onDevice = tier === "device";
  const total = onDevice ? device.total_bytes : findValue(metrics, "gmsfs_tier_total_bytes", { tier });
  const used = onDevice ? device.used_bytes : findValue(metrics, "gmsfs_tier_used_bytes", { tier });
  const areas = [];
  let left = total;
  // The files are read one after the other, so numbers of different moments never make more than there is.
  const add = (area) => {
    const bytes = Math.min(Math.max(0, area.bytes), left);
    if (bytes > 0) areas.push({ ...area, bytes });
    left -= bytes;
  };
  const here = stores.filter((store) => store.bytes > 0 && tiersOf(store).includes(tier)).sort((a, b) => b.bytes - a.bytes);
  for (const store of here.slice(0, most)) add({ kind: "store", name: store.name, bytes: store.bytes });
  const small = here.slice(most);
  add({ kind: "others", name: `${small.length} smaller stores`, bytes: small.reduce((sum, one) => sum + one.bytes, 0) });
  const { freeing_bytes: freeing = 0, mapped_bytes: mapped = 0, reserved_bytes: reserved = 0, free_bytes: free = null } =
    onDevice ? device : {};
  add({ kind: "rest", name: "being made, and copies beside a writer's", bytes: used - (total - left) - freeing - mapped });
  add({ kind: "freeing", name: "on its way out", bytes: freeing });
  add({ kind: "mapped", name: "given up, still mapped by processes", bytes: mapped });
  add({ kind: "reserved", name: "reserved", bytes: reserved });
  // The driver counts as used what other programs have.
  add({ kind: "foreign", name: "held by other programs", bytes: free === null ? 0 : left - free });
  add({ kind: "free", name: "free", bytes: left });
  return { tier, total, used, areas };
}

const ORDERS = {
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  state: (a, b) => a.state.localeCompare(b.state) || ORDERS.name(a, b),
  bytes: (a, b) => b.bytes - a.bytes || ORDERS.name(a, b),
  holders: (a, b) => holdersOf(b) - holdersOf(a) || ORDERS.name(a, b),
  waiters: (a, b) => b.waiters - a.waiters || b.waitSeconds - a.waitSeconds || ORDERS.name(a, b),
  used: (a, b) => (b.usedAt ?? 0) - (a.usedAt ?? 0) || ORDERS.name(a, b),
};

const FALLING = ["bytes", "holders", "waiters", "used"]; // the largest is first

// Returns the direction of an order, as aria-sort names it.
export const directionOf = (order, backwards) => (FALLING.includes(order) === backwards ? "ascending" : "descending");

export function sortStores(stores, order, backwards) {
  const sorted = [...stores].sort(ORDERS[order] ?? ORDERS.name);
  return backwards ? sorted.reverse() : sorted;
}

// Returns the models that stand on several mounts: [{name, by, differs, places: [{mount, store}]}]. Stores are one
// model by their group (a load of all ranks), else by the id of their contents, else by their name; `by` tells which,
// and `differs` that stores of a name are known to have different groups or contents. A mount's `ids` are what `info` told so far.
export function makePlacement(mounts) {
  const places = mounts.flatMap((mount) => (mount.stores ?? []).filter((store) => store.state !== "EMPTY")
    .map((store) => ({ mount: mount.name, store, ids: mount.ids?.get(store.name) ?? {} })));
  const keys = [["group", ({ ids }) => ids.group], ["contents", ({ ids }) => ids.contents], ["name", ({ store }) => store.name]];
  const models = keys.flatMap(([by, keyOf]) => gather(places, keyOf).map((found) => ({ by, places: found })));
  const isPart = (few, all) => few.places.every((place) => all.places.includes(place));
  return models.filter((one, i) => !models.slice(0, i).some((before) => isPart(one, before)))
    .map(({ by, places: found }) => ({
      name: [...new Set(found.map((place) => place.store.name))].join(", "), by,
      differs: by === "name" && ["group", "contents"].some((id) => new Set(found.map((place) => place.ids[id]).filter((known) => known)).size > 1),
      places: found.map(({ mount, store }) => ({ mount, store })),
    }));
}

// Returns the lists of places with the same key that are on two mounts or more.
function gather(places, keyOf) {
  const found = new Map();
  for (const place of places) {
    const key = keyOf(place);
    if (!key) continue;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(place);
  }
  return [...found.values()].filter((list) => new Set(list.map((place) => place.mount)).size > 1);
}

export const HISTORY_MS = 60000;

// One minute of a mount's numbers. Rates are per second, from counters that only grow.
export class History {
  points = [];
  last = null;

  add(at, device, metrics, stores) {
    const counters = {
      grants: sumValues(metrics, "gmsfs_store_grants_total"),
      read: sumValues(metrics, "gmsfs_read_bytes_total"),
      moved: sumValues(metrics, "gmsfs_move_bytes_total"),
    };
    const seconds = this.last ? (at - this.last.at) / 1000 : 0;
    const rate = (key) => (seconds > 0 ? Math.max(0, counters[key] - this.last.counters[key]) / seconds : 0);
    this.points.push({
      at,
      used: device.used_bytes,
      holders: stores.reduce((sum, one) => sum + holdersOf(one), 0),
      waiters: stores.reduce((sum, one) => sum + one.waiters, 0),
      grants: rate("grants"), read: rate("read"), moved: rate("moved"),
    });
    this.points = this.points.filter((point) => point.at > at - HISTORY_MS);
    this.last = { at, counters };
  }
}

// Returns the bytes of each tag, the largest first.
export function sumTags(allocations) {
  const tags = new Map();
  for (const { aligned, tag } of allocations) tags.set(tag, (tags.get(tag) ?? 0) + aligned);
  return [...tags].map(([tag, bytes]) => ({ tag, bytes })).sort((a, b) => b.bytes - a.bytes);
}
