// SPDX-License-Identifier: Apache-2.0
// So many pages that look at a mount, without a browser, by look() of web/look.js. Not asked here: `info`, for which a page
// of several mounts asks 200 stores of each once a minute, and `residency` of 20 stores while jobs run. For bench/pages.py.
//
//     node pages.mjs ADDRESS MOUNT COUNT      until it is killed

import { Mount } from "../web/look.js";

const [address, name, count] = process.argv.slice(2);
const get = globalThis.fetch;
globalThis.fetch = (path, options) => get(address + path, options);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function follow(mount) {
  for (;;) {
    await mount.look();
    await sleep(mount.pauseMs);
  }
}

// Not all in the same moment, as people do not open them either.
for (let i = 0; i < Number(count); i++) {
  follow(new Mount(name, (mount) => console.error(mount.trouble.message)));
  await sleep(300);
}
