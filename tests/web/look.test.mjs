// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import test from "node:test";

import { Mount } from "../../web/look.js";

// A mount with committed stores, whose requests wait: each has its path, `answer` and `fail`.
function makeMount(stores) {
  const asked = [];
  globalThis.fetch = (path) => new Promise((answer, fail) => asked.push({ path, answer, fail }));
  const mount = new Mount("host", () => {});
  mount.stores = Array.from({ length: stores }, (_, i) => ({ name: `s${i}`, state: "COMMITTED", generation: 1 }));
  return { mount, asked };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("a mount that hangs while stores are asked for their ids has trouble after 5 s, and one request", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { mount, asked } = makeMount(9);
  const looked = mount.lookAtIds();
  asked[0].answer(new Response('{"group":"1","contents_id":"2"}'));
  await settle();
  assert.deepEqual(asked.map((one) => one.path), ["/host/s0/info", "/host/s1/info"]);
  context.mock.timers.tick(4999);
  assert.equal(mount.trouble, null);
  context.mock.timers.tick(1);
  assert.match(mount.trouble.message, /no answer within 5 s/);
  asked[1].answer(new Response("", { status: 500 }));
  await looked;
  assert.equal(asked.length, 2);
  assert.deepEqual([...mount.ids.keys()], ["s0"]);
});

test("a store that is gone, or may not be read, keeps no other from being asked", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { mount, asked } = makeMount(3);
  const looked = mount.lookAtIds();
  for (const [at, answer] of [new Response("", { status: 404 }), new Response("", { status: 403 }), new Response("{}")].entries()) {
    asked[at].answer(answer);
    await settle();
  }
  await looked;
  assert.equal(mount.trouble, null);
  assert.deepEqual([...mount.ids.keys()], ["s0", "s1", "s2"]);
  context.mock.timers.tick(60000);
  assert.equal(mount.trouble, null, "a timer was left");
});
