// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";

import { directionOf, History, HISTORY_MS, holdersOf, makeBars, makePlacement, makeStores, sortStores, sumTags, tiersOf } from "../../web/model.js";
import { readMetrics } from "../../web/text.js";

function metricsOf(stores, tiers = {}) {
  const lines = Object.entries(tiers).flatMap(([tier, [total, used]]) =>
    [`gmsfs_tier_total_bytes{tier="${tier}"} ${total}`, `gmsfs_tier_used_bytes{tier="${tier}"} ${used}`]);
  for (const { name, state, bytes = 0, tier, readers = 0, waiters = 0 } of stores) {
    for (const one of ["EMPTY", "RW", "COMMITTED", "RO", "LAYOUT_COMMITTED"])
      lines.push(`gmsfs_store_state{store="${name}",state="${one}"} ${Number(one === state)}`);
    for (const one of ["device", "host", "disk"]) lines.push(`gmsfs_store_copy{store="${name}",tier="${one}"} ${Number(one === tier)}`);
    lines.push(`gmsfs_store_bytes{store="${name}"} ${bytes}`, `gmsfs_store_readers{store="${name}"} ${readers}`,
      `gmsfs_store_waiters{store="${name}"} ${waiters}`);
  }
  return readMetrics(lines.join("\n"));
}

const DEVICE = { total_bytes: 1000, used_bytes: 0, freeing_bytes: 0, mapped_bytes: 0, reserved_bytes: 0 };
const sumOf = (bar) => bar.areas.reduce((sum, area) => sum + area.bytes, 0);
const bytesOf = (bar) => Object.fromEntries(bar.areas.map((area) => [area.kind === "store" ? area.name : area.kind, area.bytes]));

test("areas of a bar add up to its total", () => {
  const metrics = metricsOf([
    { name: "a", state: "COMMITTED", bytes: 300, tier: "device" }, { name: "b", state: "RW", bytes: 100 },
    { name: "c", state: "COMMITTED", bytes: 200, tier: "host" }, { name: "d", state: "EMPTY" },
  ], { device: [1000, 480], host: [500, 260], disk: [0, 0] });
  const device = { ...DEVICE, used_bytes: 480, freeing_bytes: 20, mapped_bytes: 30, reserved_bytes: 120, free_bytes: 350 };
  const bars = makeBars(device, metrics, makeStores(metrics));
  assert.deepEqual(bars.map((bar) => [bar.tier, bar.total, bar.used, sumOf(bar)]), [["device", 1000, 480, 1000], ["host", 500, 260, 500]]);
  assert.deepEqual(bytesOf(bars[0]), { a: 300, b: 100, rest: 30, freeing: 20, mapped: 30, reserved: 120, foreign: 50, free: 350 });
  assert.deepEqual(bytesOf(bars[1]), { c: 200, rest: 60, free: 240 });
});

test("numbers of different moments never make more than the total", () => {
  const metrics = metricsOf([{ name: "a", state: "COMMITTED", bytes: 900, tier: "device" }, { name: "b", state: "RW", bytes: 300 }]);
  const [bar] = makeBars({ ...DEVICE, used_bytes: 500, freeing_bytes: 700, reserved_bytes: 900, free_bytes: 5000 }, metrics, makeStores(metrics));
  assert.equal(sumOf(bar), 1000);
  assert(bar.areas.every((area) => area.bytes > 0));
});

test("many stores become one area", () => {
  const metrics = metricsOf(Array.from({ length: 100 }, (_, i) => ({ name: `s${i}`, state: "COMMITTED", bytes: i, tier: "device" })));
  const [bar] = makeBars({ ...DEVICE, total_bytes: 1e6, used_bytes: 4950 }, metrics, makeStores(metrics));
  assert.equal(bar.areas.filter((area) => area.kind === "store").length, 60);
  assert.deepEqual(bar.areas.find((area) => area.kind === "others"), { kind: "others", name: "39 smaller stores", bytes: 780 });
  assert.equal(sumOf(bar), 1e6);
});

test("orders of stores", () => {
  const stores = makeStores(metricsOf([{ name: "s10", state: "RO", bytes: 5, readers: 1 }, { name: "s9", state: "EMPTY", waiters: 2 },
    { name: "__proto__", state: "RW", bytes: 7 }]));
  const names = (order, backwards = false) => sortStores(stores, order, backwards).map((store) => store.name).join(" ");
  assert.equal(names("name"), "__proto__ s9 s10");
  assert.equal(names("name", true), "s10 s9 __proto__");
  assert.equal(names("bytes"), "__proto__ s10 s9");
  assert.equal(names("waiters"), "s9 __proto__ s10");
  assert.equal(names("holders"), "__proto__ s10 s9");
  assert.deepEqual([directionOf("name", false), directionOf("bytes", false), directionOf("bytes", true)], ["ascending", "descending", "ascending"]);
});

test("models on several mounts", () => {
  const mount = (name, ...stores) => ({ name, stores: makeStores(metricsOf(stores)) });
  const models = makePlacement([mount("gpu0", { name: "m", state: "RO" }, { name: "alone", state: "RO" }, { name: "empty", state: "EMPTY" }),
    mount("gpu1", { name: "m", state: "COMMITTED" }, { name: "empty", state: "EMPTY" }), { name: "hangs", stores: null }]);
  assert.deepEqual(models.map(({ name, places }) => [name, places.map((place) => place.mount)]), [["m", ["gpu0", "gpu1"]]]);
});

test("one model by its group or contents, and one name for two models", () => {
  const mount = (name, ids) => ({ name, ids: new Map(Object.entries(ids)),
    stores: makeStores(metricsOf(Object.keys(ids).map((store) => ({ name: store, state: "RO" })))) });
  const models = makePlacement([
    mount("gpu0", { rank0: { group: "g" }, copy: { contents: "c" }, weights: { group: "old" }, same: { contents: "d" } }),
    mount("gpu1", { rank1: { group: "g" }, other: { contents: "c" }, weights: { group: "new" }, same: { contents: "d" } }),
  ]);
  assert.deepEqual(models.map(({ name, by, differs }) => [name, by, differs]), [["rank0, rank1", "group", false],
    ["copy, other", "contents", false], ["same", "contents", false], ["weights", "name", true]]);
  assert.deepEqual(models[0].places.map((place) => [place.mount, place.store.name]), [["gpu0", "rank0"], ["gpu1", "rank1"]]);
});

test("a writer holds its store, and its bytes are on the device", () => {
  const [store, empty] = makeStores(metricsOf([{ name: "w", state: "RW", bytes: 5 }, { name: "e", state: "EMPTY" }]));
  assert.deepEqual([tiersOf(store), holdersOf(store), tiersOf(empty), holdersOf(empty)], [["device"], 1, [], 0]);
});

test("history is one minute of rates", () => {
  const history = new History();
  const add = (at, moved) => history.add(at, { used_bytes: 5 }, readMetrics(`gmsfs_move_bytes_total{to="host"} ${moved}`), []);
  add(0, 100);
  add(2000, 300);
  add(3000, 0); // another mount stands there
  assert.deepEqual(history.points.map((point) => point.moved), [0, 100, 0]);
  for (let at = 4000; at < 200000; at += 1000) add(at, at);
  assert.equal(history.points.length, HISTORY_MS / 1000);
  assert.equal(history.points.at(-1).moved, 1000);
});

test("bytes by tag", () => {
  assert.deepEqual(sumTags([{ aligned: 1, tag: "a" }, { aligned: 5, tag: "b" }, { aligned: 2, tag: "a" }]), [{ tag: "b", bytes: 5 }, { tag: "a", bytes: 3 }]);
});
