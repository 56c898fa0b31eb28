// SPDX-License-Identifier: Apache-2.0
// The page: asks the mounts again and again, and draws them.

import { make, update } from "./dom.js";
import { askMounts, Mount } from "./look.js";
import { sumValues } from "./text.js";
import { makeMount, makePlacementTable, makeStore, ROWS } from "./view.js";

const MOUNTS_AGAIN_MS = 5000;
const STORE_AGAIN_MS = 2000;
const MOVES_SHOWN = 20; // stores whose `residency` is read in a round

const places = new Map(); // by mount: its section and what the user chose there
let mounts = [];
let paused = false;
let shownStore = null; // what the dialog shows

const byId = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- mounts -------------------------------------------------------------------------------------

function makePlace(mount) {
  const section = make("section", { class: "mount", "aria-label": `mount ${mount.name}`, "data-mount": mount.name });
  const page = {
    order: "bytes", backwards: false, rows: ROWS, eventsOpen: false,
    openStore: (name) => openStore(mount, name),
    sortBy(order) {
      page.backwards = page.order === order && !page.backwards;
      page.order = order;
      draw(mount);
    },
    showMore() {
      page.rows += ROWS;
      draw(mount);
    },
  };
  mount.moves = new Map();
  byId("mounts").append(section);
  return { section, page };
}

function draw(mount) {
  const { section, page } = places.get(mount);
  update(section, ...makeMount(mount, page, byId("filter").value));
  const silent = mounts.filter((one) => one.trouble).map((one) => one.name);
  say(silent.length ? `No numbers from: ${silent.join(", ")}` : "");
}

// Says it above all mounts, once.
function say(text) {
  if (byId("note").textContent !== text) byId("note").textContent = text;
}

// Reads where the shown stores are moving to, and how fast, while the daemon has jobs.
async function lookAtMoves(mount) {
  const busy = sumValues(mount.metrics, "gmsfs_jobs_in_flight") > 0;
  const shown = busy ? mount.shown.filter((store) => store.bytes > 0).slice(0, MOVES_SHOWN) : [];
  const moves = new Map();
  for (const store of shown) {
    const moving = (await mount.askStore(store.name, ["residency"])).residency?.moving;
    if (!moving) continue;
    const before = mount.moves.get(store.name);
    moving.at = performance.now();
    if (before?.to === moving.to)
      moving.rate = Math.max(0, (1000 * (moving.done - before.done)) / (moving.at - before.at));
    moves.set(store.name, moving);
  }
  mount.moves = moves;
}

async function follow(mount) {
  for (;;) {
    if (!paused && !document.hidden) {
      await mount.look();
      draw(mount);
      if (!mount.trouble) await lookAtMoves(mount);
      if (mount.moves.size) draw(mount);
      if (!mount.trouble && mounts.length > 1) await mount.lookAtIds();
      update(byId("placement"), ...makePlacementTable(mounts));
    }
    await sleep(mount.pauseMs);
  }
}

async function start() {
  byId("where").textContent = location.host;
  let names;
  try {
    names = await askMounts();
  } catch (error) {
    say(`The list of mounts: ${error.message}. This page asks again.`);
    setTimeout(start, MOUNTS_AGAIN_MS);
    return;
  }
  say("");
  mounts = names.map((name) => new Mount(name, draw));
  for (const mount of mounts) {
    places.set(mount, makePlace(mount));
    draw(mount);
    follow(mount);
  }
  // The age of what is shown.
  setInterval(() => mounts.filter((mount) => mount.trouble).forEach(draw), 1000);
}

// ---- one store ----------------------------------------------------------------------------------

async function openStore(mount, name) {
  const dialog = byId("store");
  const page = {
    entryFilter: "",
    close: () => dialog.close(),
    filterEntries(text) {
      page.entryFilter = text;
      show();
    },
    async askSums() {
      page.sums = { text: "The daemon sums the bytes …" };
      show();
      try {
        page.sums = await mount.askSums(name);
        if (!page.sums.pieces.length) page.sums = { text: "Nothing is committed, so there are no sums." };
      } catch (error) {
        page.sums = { text: `No sums: ${error.message}` };
      }
      if (dialog.open && shownStore === page) show();
    },
  };
  let found = { why: [] };
  const find = () => mount.stores.find((store) => store.name === name);
  const show = () => update(dialog, ...makeStore(mount, name, find(), found, page));
  shownStore = page;
  show();
  dialog.showModal();
  byId("close").focus();
  let generation = null;
  while (dialog.open && shownStore === page) {
    const parts = ["info", "sessions", "residency", "layout_hash"];
    const isNew = find()?.generation !== generation && !mount.trouble;
    if (isNew) {
      generation = find()?.generation;
      page.sums = null;
    }
    const { layout } = found;
    const fresh = await mount.askStore(name, isNew ? [...parts, "layout"] : parts);
    if (!mount.trouble) found = { layout, ...fresh };
    if (shownStore === page) show();
    await sleep(Math.max(STORE_AGAIN_MS, mount.pauseMs));
  }
}

byId("filter").addEventListener("input", () => mounts.forEach(draw));
byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
});
start();
