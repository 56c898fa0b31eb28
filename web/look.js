// SPDX-License-Identifier: Apache-2.0
// Asks the server for the files of a mount. Every failure becomes a Trouble, which says the way out.

import { readEvents, readMetrics, readPieces, readPools, readResidency, readSessions } from "./text.js";
import { readLayout } from "./layout.js";
import { History, makeBars, makeStores } from "./model.js";

const PATIENCE_MS = 5000; // a mount that hangs never answers
// Each request to such a mount blocks a process of the server for as long as it hangs. So the page asks for one
// file after the other, tries twice, and then waits.
const GIVE_UP_MS = 10000;
const GIVE_UP_AGAIN_MS = 300000;
const LEAST_PAUSE_MS = 1000;
const MOST_PAUSE_MS = 60000;
const METRICS_PER_MS = 64; // bytes of `metrics` for each millisecond until it is read again
const NAMING = ["info", "sessions"]; // files for trusted clients alone
const EVENTS_AT_FIRST = 16384;
const EVENTS_MOST = 200;
const LAYOUT_MOST = 64 << 20; // bytes of a layout that a page reads
const SUMS_MS = 600000; // time that a mount has for making sums
const IDS_MOST = 200; // stores of a mount whose group and contents a page knows
const IDS_A_LOOK = 8; // of which so many are asked in a look
const IDS_AGAIN_MS = 60000;

export class Trouble extends Error {
  constructor(text, status = 0) {
    super(text);
    this.status = status;
  }
}

const makeLate = () => new Trouble(`no answer within ${PATIENCE_MS / 1000} s`);

// Returns the answer to a GET of a path below the server's root; its parts are names. nginx closes the connection where
// a busy machine lets a text change between the look at its size and the read, so a lost answer is asked for again.
async function ask(parts, headers = {}, giveUpMs = GIVE_UP_MS) {
  const path = "/" + parts.map(encodeURIComponent).join("/");
  const signal = AbortSignal.timeout(giveUpMs);
  const get = () => fetch(path, { headers, cache: "no-store", redirect: "error", signal });
  let answer;
  try {
    answer = await get().catch((error) => (signal.aborted ? Promise.reject(error) : get()));
  } catch (error) {
    throw error.name === "TimeoutError" ? makeLate() : new Trouble("the server does not answer");
  }
  if (answer.ok) return answer;
  throw new Trouble(`its file ${parts.at(-1)} cannot be read (status ${answer.status})`, answer.status);
}

const askText = async (...parts) => (await ask(parts)).text();

// Returns the names of the mounts that the server serves.
export const askMounts = async () => (await ask(["ui", "mounts.json"])).json();

export class Mount {
  constructor(name, changed) {
    this.name = name;
    this.changed = changed; // called when a look takes too long
    this.trouble = null; // why the last look failed
    this.answered = null; // when the last look came
    this.device = this.stores = this.pools = this.bars = null;
    this.history = new History();
    this.events = [];
    this.eventsAt = null;
    this.trusted = true; // false once the server kept events to itself
    this.pauseMs = LEAST_PAUSE_MS;
    this.storesPauseMs = this.storesDue = 0; // when `metrics` is read again
    this.ids = new Map(); // by store: {generation, due, group, contents} as `info` told
  }

  // Looks once. A look that takes long makes the next one come later. Only a mount of many stores has long metrics,
  // whose making keeps others waiting: ten pages leave it 99 % of its time.
  async look() {
    const start = performance.now();
    const late = setTimeout(() => this.fail(makeLate()), PATIENCE_MS);
    const giveUpMs = this.trouble ? GIVE_UP_AGAIN_MS : GIVE_UP_MS;
    try {
      this.device = await (await ask([this.name, "device"], {}, giveUpMs)).json();
      this.pools = readPools(await askText(this.name, "pools"));
      if (performance.now() >= this.storesDue) await this.lookAtStores();
      this.bars = makeBars(this.device, this.metrics, this.stores);
      if (this.trusted) await this.lookAtEvents();
      this.trouble = null;
      this.answered = Date.now();
      this.pauseMs = Math.min(MOST_PAUSE_MS, Math.max(LEAST_PAUSE_MS, 20 * (performance.now() - start)));
    } catch (error) {
      this.fail(error instanceof Trouble ? error : new Trouble(`an answer that cannot be read: ${error.message}`));
    } finally {
      clearTimeout(late);
    }
  }

  async lookAtStores() {
    const text = await askText(this.name, "metrics");
    this.metrics = readMetrics(text);
    this.stores = makeStores(this.metrics);
    this.history.add(Date.now(), this.device, this.metrics, this.stores);
    this.storesPauseMs = Math.min(MOST_PAUSE_MS, text.length / METRICS_PER_MS);
    this.storesDue = performance.now() + this.storesPauseMs;
  }

  fail(trouble) {
    this.trouble = trouble;
    this.storesDue = 0;
    this.pauseMs = LEAST_PAUSE_MS;
    this.changed(this);
  }

  // Reads from the last newline on, for a range behind the end is an error.
  async lookAtEvents() {
    try {
      const range = this.eventsAt === null ? `bytes=-${EVENTS_AT_FIRST}` : `bytes=${this.eventsAt - 1}-`;
      const answer = await ask([this.name, "events"], { Range: range });
      const bytes = new Uint8Array(await answer.arrayBuffer());
      const begins = Number(/^bytes (\d+)-/.exec(answer.headers.get("Content-Range") ?? "")?.[1] ?? 0);
      const whole = bytes.lastIndexOf(0x0a) + 1; // the rest of the last line comes next time
      if (this.eventsAt === null) this.events = [];
      this.events.push(...readEvents(new TextDecoder().decode(bytes.subarray(0, whole))));
      this.events.splice(0, this.events.length - EVENTS_MOST);
      this.eventsAt = begins + whole || null;
    } catch (error) {
      if (error.status === 403) this.trusted = false;
      else this.eventsAt = null;
    }
  }

  // Asks a few committed stores for their group and contents, each anew with its next contents or after a while.
  async lookAtIds() {
    const wanted = this.stores.filter((store) => store.state === "COMMITTED" || store.state === "RO").slice(0, IDS_MOST);
    const now = performance.now();
    const isDue = ({ name, generation }) => {
      const known = this.ids.get(name);
      return !known || known.generation !== generation || known.due < now;
    };
    for (const { name, generation } of wanted.filter(isDue).slice(0, IDS_A_LOOK)) {
      const { info } = await this.askStore(name, ["info"]);
      if (this.trouble) break; // it hangs, and each request blocks a process of the server
      this.ids.set(name, { generation, due: now + IDS_AGAIN_MS, group: info?.group, contents: info?.contents_id });
    }
    const names = new Set(wanted.map((store) => store.name));
    for (const name of this.ids.keys()) if (!names.has(name)) this.ids.delete(name);
  }

  // Returns the sums of a store's pieces. The daemon reads all bytes of a store whose sums it does not have.
  async askSums(name) {
    const answer = await ask([this.name, name, "pieces"], {}, SUMS_MS);
    return readPieces(new TextDecoder().decode(await readBounded(answer, LAYOUT_MOST)));
  }

  // Returns what these files of a store tell: {info, sessions, residency, layout_hash, layout, why}.
  async askStore(name, parts) {
    const readers = {
      info: (answer) => answer.json(),
      sessions: async (answer) => readSessions(await answer.text()),
      residency: async (answer) => readResidency(await answer.text()),
      layout_hash: async (answer) => (await answer.text()).trim(),
      layout: async (answer) => readLayout(await readBounded(answer, LAYOUT_MOST)),
    };
    const found = { why: [] };
    for (const part of parts) {
      if (this.trouble || (!this.trusted && NAMING.includes(part))) continue;
      const late = setTimeout(() => this.fail(makeLate()), PATIENCE_MS);
      try {
        found[part] = await readers[part](await ask([this.name, name, part]).finally(() => clearTimeout(late)));
      } catch (error) {
        if (error.status !== 403 || !NAMING.includes(part)) found.why.push(error.message);
      }
    }
    return found;
  }
}

async function readBounded(answer, most) {
  const size = Number(answer.headers.get("Content-Length") ?? 0);
  if (size > most) throw new Trouble(`${size} bytes are too many for a page; gmsfs ls shows them`);
  return new Uint8Array(await answer.arrayBuffer());
}

// Returns what an operator can do about a mount that does not answer.
export function adviceFor(trouble) {
  if (trouble.status === 404)
    return "The mount is not there. On its machine: gmsfs status; then gmsfs mount, or systemctl start of its unit.";
  if (trouble.status === 403) return "The server's user may not read the mount: mount it with -o allow_other.";
  if (trouble.status === 429) return "The server has too many clients. This page asks again.";
  if (trouble.status >= 500)
    return "The mount's daemon has gone, the device is lost, or the server's user may not look into the mount. On its machine: gmsfs status and " +
      "the daemon's log tell which. " +
      "If the daemon has gone: gmsfs umount -l of the path, then gmsfs mount, which begins without stores.";
  return "The mount or the server hangs. On its machine: gmsfs status; a stopped worker shows in ps, and kill -9 of the worker " +
    "loses nothing.";
}
