// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";

import { readLayout } from "../../web/layout.js";

const text = (string) => [0xa0 | string.length, ...Buffer.from(string)];
const blob = (...bytes) => [0xc4, bytes.length, ...bytes];
const u64 = (number) => [0xcf, ...new Uint8Array(new BigUint64Array([BigInt(number)]).buffer).reverse()];

// An allocation of 3 GB with a tag, one without, an entry at an offset, and one of the store.
const LAYOUT = Uint8Array.from([
  0x83, ...text("v"), 1,
  ...text("allocations"), 0x92, 0x93, ...u64(3e9), ...u64(3001024512), ...text("blocks"), 0x93, 0, 0xcd, 0x10, 0x00, ...text(""),
  ...text("metadata"), 0x92, 0x94, ...text("key"), 0, 0xcc, 200, ...blob(1, 2, 3), 0x94, ...text("note"), 0xc0, 0, ...blob(),
]);

test("a layout", () => {
  const layout = readLayout(LAYOUT);
  assert.deepEqual(layout.allocations, [{ size: 3e9, aligned: 3001024512, tag: "blocks" }, { size: 0, aligned: 4096, tag: "" }]);
  assert.deepEqual(layout.entries.map(({ key, rank, offset, value }) => [key, rank, offset, ...value]),
    [["key", 0, 200, 1, 2, 3], ["note", null, 0]]);
});

test("no layout", () => {
  assert.equal(readLayout(new Uint8Array()), null);
});

test("a layout that is cut anywhere is refused", () => {
  for (let size = 1; size < LAYOUT.length; size++)
    assert.throws(() => readLayout(LAYOUT.subarray(0, size)), RangeError, `${size} bytes`);
});

test("lengths that lie are refused, and take neither memory nor time", () => {
  const hostile = [
    [0xdd, 0xff, 0xff, 0xff, 0xff], [0xdf, 0xff, 0xff, 0xff, 0xff], [0xdb, 0xff, 0xff, 0xff, 0xff, 0x61],
    [0xc6, 0xff, 0xff, 0xff, 0xff], [0xdc, 0xff, 0xff], [0xde, 0xff, 0xff], [0xc1], [0xff], [0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
  ];
  for (const bytes of hostile) assert.throws(() => readLayout(Uint8Array.from(bytes)), RangeError, String(bytes));
  assert.throws(() => readLayout(new Uint8Array(1 << 20).fill(0x91)), RangeError, "a million arrays in each other");
});

test("what is no layout is refused", () => {
  for (const bytes of [[5], [0x80], [0xc0], [0x81, ...text("v"), 2], [0x83, ...text("v"), 1, ...text("allocations"), 0x91, 5, ...text("metadata"), 0x90],
    [0x83, ...text("v"), 1, ...text("allocations"), 0x91, 0x93, 0xc0, 0xc0, 0xc0, ...text("metadata"), 0x90],
    [0x83, ...text("v"), 1, ...text("allocations"), 0x90, ...text("metadata"), 0x91, 0x94, ...text("k"), 0, 0, 5]])
    assert.throws(() => readLayout(Uint8Array.from(bytes)), RangeError, String(bytes));
});

test("random damage is refused with a RangeError, or read", () => {
  let seed = 1;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let i = 0; i < 20000; i++) {
    const bytes = LAYOUT.slice();
    for (let j = 0; j <= random(3); j++) bytes[random(bytes.length)] = random(256);
    try {
      readLayout(bytes);
    } catch (error) {
      assert(error instanceof RangeError, `${error.stack} of ${bytes}`);
    }
  }
});
