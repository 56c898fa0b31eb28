// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";

import {
  countText, durationText, findValue, nameText, readEvents, readMetrics, readPieces, readPools, readResidency, readSessions, sizeText, sumValues,
} from "../../web/text.js";

test("metrics, with every character that a label's value can have", () => {
  const metrics = readMetrics([
    "# HELP gmsfs_store_bytes Bytes of a store.", "# TYPE gmsfs_store_bytes gauge",
    'gmsfs_store_bytes{store="a\\"b\\\\n\\nc"} 3', 'gmsfs_store_bytes{store="} 9 {x=\\"1\\"",pool="p"} 4',
    'gmsfs_store_bytes{store="a,b=\\"c\\""} 1e3', "gmsfs_open_files 7", 'gmsfs_x_bucket{le="+Inf"} +Inf', "no line", "",
  ].join("\n"));
  assert.deepEqual(metrics.gmsfs_store_bytes.map((one) => one.labels.store), ['a"b\\n\nc', '} 9 {x="1"', 'a,b="c"']);
  assert.equal(findValue(metrics, "gmsfs_store_bytes", { store: '} 9 {x="1"', pool: "p" }), 4);
  assert.equal(findValue(metrics, "gmsfs_store_bytes", { store: "none" }), 0);
  assert.equal(sumValues(metrics, "gmsfs_store_bytes"), 1007);
  assert.equal(metrics.gmsfs_open_files[0].value, 7);
  assert.equal(metrics.gmsfs_x_bucket[0].value, Infinity);
  assert.equal(sumValues(metrics, "none"), 0);
});

test("a store named as a property of every object is a label like others", () => {
  const [sample] = readMetrics('m{store="__proto__",state="constructor"} 1').m;
  assert.equal(sample.labels.store, "__proto__");
  assert.equal(sample.labels.state, "constructor");
  assert.equal(findValue(readMetrics(""), "toString"), 0);
  assert.equal(readMetrics("__proto__ 5\nconstructor 6").constructor[0].value, 6);
});

test("pools", () => {
  assert.deepEqual(readPools("default min=0 max=max slots=max class=standard used=7\nchat min=16 max=96 class=high used=5\n"), [
    { name: "default", min: 0, max: "max", slots: "max", class: "standard", used: 7 },
    { name: "chat", min: 16, max: 96, class: "high", used: 5 },
  ]);
  assert.deepEqual(readPools(""), []);
});

test("sessions, whose commands are escaped", () => {
  const [holder, waiter] = readSessions("4 RO held 12 1000 a\\040b\\134 12:00:01 2\n5 RW waiting 13 0 sh 12:00:02 0\n");
  assert.equal(holder.command, "a b\\");
  assert.equal(holder.waits, false);
  assert.deepEqual([waiter.waits, waiter.mode, waiter.pid, waiter.uid], [true, "RW", "13", "0"]);
});

test("residency", () => {
  assert.deepEqual(readResidency(""), { tiers: [], moving: null });
  assert.deepEqual(readResidency("device host\n"), { tiers: ["device", "host"], moving: null });
  assert.deepEqual(readResidency("device\nmoving host 5 12582912\n"), { tiers: ["device"], moving: { to: "host", done: 5, all: 12582912 } });
});

test("events that are cut at both ends", () => {
  const text = 'ore":"x"}\n{"event":"granted","store":"a\\n"}\n{"event":"released"}\n{"eve';
  assert.deepEqual(readEvents(text), [{ event: "granted", store: "a\n" }, { event: "released" }]);
  assert.deepEqual(readEvents(""), []);
});

test("words for numbers", () => {
  assert.deepEqual([0, 1023, 1024, 1536 * 1024, 256 * 2 ** 30, 2 ** 60, null].map(sizeText),
    ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "256 GiB", "1024 PiB", "–"]);
  assert.deepEqual([0.004, 5, 300, 10000, 1e6, NaN, -1].map(durationText), ["4 ms", "5 s", "5 min", "3 h", "12 days", "–", "–"]);
  assert.deepEqual([countText(1, "entry", "entries"), countText(2, "entry", "entries"), countText(0, "store")],
    ["1 entry", "2 entries", "0 stores"]);
});

test("names show characters that change how others are read", () => {
  assert.equal(nameText("a\nb\u202ec\u200b\u2028"), "a\\u000ab\\u202ec\\u200b\\u2028");
  assert.equal(nameText("<b>ü🙂</b>"), "<b>ü🙂</b>");
});

test("sums of pieces, with names that have blanks", () => {
  const { id, pieces } = readPieces("gmsfs-pieces 1\nid 5f0c\npiece_bytes 16777216\nallocations 1\nallocation 0 20000000 a b\n" +
    "pieces 2\npiece 0 0 16777216 9d59\npiece 0 16777216 3222784 65ab\nend 4a4d\n");
  assert.equal(id, "5f0c");
  assert.deepEqual(pieces.map((piece) => [piece.name, piece.offset, piece.bytes, piece.sum]),
    [["a b", 0, 16777216, "9d59"], ["a b", 16777216, 3222784, "65ab"]]);
  assert.deepEqual(readPieces(""), { id: null, pieces: [] });
});
