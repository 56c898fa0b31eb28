// SPDX-License-Identifier: Apache-2.0
// Reads a store's canonical layout: msgpack, as gmsfs(5) describes it. Pure.

const decoder = new TextDecoder();
const DEPTH = 3; // levels of arrays and maps

const isNumber = (value) => typeof value === "number";
const isText = (value) => typeof value === "string";
const isRank = (value) => value === null || isNumber(value);
const isBytes = (value) => value instanceof Uint8Array;

// A server may send anything: every length is held against the bytes that are there.
class Input {
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.depth = 0;
  }

  take(size) {
    if (size > this.view.byteLength - this.at) throw new RangeError("the layout is cut");
    this.at += size;
    return this.at - size;
  }

  number(size) {
    const at = this.take(size);
    if (size === 8) return Number(this.view.getBigUint64(at));
    return size === 4 ? this.view.getUint32(at) : size === 2 ? this.view.getUint16(at) : this.view.getUint8(at);
  }

  bytes(size) {
    const at = this.take(size);
    return new Uint8Array(this.view.buffer, this.view.byteOffset + at, size);
  }

  array(count) {
    // Each item has a byte at least.
    if (count > this.view.byteLength - this.at) throw new RangeError("the layout is cut");
    if (++this.depth > DEPTH) throw new RangeError("the layout has too many levels");
    const items = Array.from({ length: count }, () => this.value());
    this.depth--;
    return items;
  }

  map(count) {
    const pairs = this.array(count * 2);
    const map = Object.create(null);
    for (let i = 0; i < pairs.length; i += 2) {
      if (!isText(pairs[i])) throw new RangeError("the layout has a key that is no text");
      map[pairs[i]] = pairs[i + 1];
    }
    return map;
  }

  value() {
    const tag = this.number(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.map(tag & 0x0f);
    if (tag < 0xa0) return this.array(tag & 0x0f);
    if (tag < 0xc0) return decoder.decode(this.bytes(tag & 0x1f));
    if (tag === 0xc0) return null;
    if (tag >= 0xc4 && tag <= 0xc6) return this.bytes(this.number(1 << (tag - 0xc4)));
    if (tag >= 0xcc && tag <= 0xcf) return this.number(1 << (tag - 0xcc));
    if (tag >= 0xd9 && tag <= 0xdb) return decoder.decode(this.bytes(this.number(1 << (tag - 0xd9))));
    if (tag === 0xdc || tag === 0xdd) return this.array(this.number(tag === 0xdc ? 2 : 4));
    if (tag === 0xde || tag === 0xdf) return this.map(this.number(tag === 0xde ? 2 : 4));
    throw new RangeError(`the layout has a byte 0x${tag.toString(16)} that it cannot have`);
  }
}

// Returns the items, each an array whose parts fit these kinds, as objects with these names.
function readItems(items, kinds) {
  if (!Array.isArray(items)) throw new RangeError("the layout lacks a list");
  return items.map((item) => {
    if (!Array.isArray(item) || item.length !== kinds.length) throw new RangeError("the layout has an item of another length");
    return Object.fromEntries(kinds.map(([name, fits], i) => {
      if (!fits(item[i])) throw new RangeError(`the layout has a wrong ${name}`);
      return [name, item[i]];
    }));
  });
}

// Returns {allocations: [{size, aligned, tag}], entries: [{key, rank, offset, value}]}; null if there is none.
// Throws a RangeError that says what is wrong.
export function readLayout(bytes) {
  if (bytes.byteLength === 0) return null;
  const layout = new Input(bytes).value();
  if (layout?.v !== 1) throw new RangeError("this is no layout of version 1");
  return {
    allocations: readItems(layout.allocations, [["size", isNumber], ["aligned", isNumber], ["tag", isText]]),
    entries: readItems(layout.metadata, [["key", isText], ["rank", isRank], ["offset", isNumber], ["value", isBytes]]),
  };
}
