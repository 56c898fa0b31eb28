// SPDX-License-Identifier: Apache-2.0
// Reads the texts of a mount, and words numbers for people. Pure: no page, no network, no clock.

// Returns the samples of a text in Prometheus' format: {name: [{labels, value}, ...], ...}.
export function readMetrics(text) {
  const metrics = Object.create(null);
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)/.exec(line);
    if (!found) continue;
    (metrics[found[1]] ??= []).push({
      labels: readLabels(found[2] ?? ""),
      value: found[3] === "+Inf" ? Infinity : Number(found[3]),
    });
  }
  return metrics;
}

function readLabels(text) {
  const labels = Object.create(null);
  for (const [, name, value] of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/gs))
    labels[name] = value.replace(/\\(.)/gs, (_, char) => (char === "n" ? "\n" : char));
  return labels;
}

// Returns the value of the sample that has these labels; 0 if there is none.
export function findValue(metrics, name, labels = {}) {
  const sample = (metrics[name] ?? []).find((one) =>
    Object.entries(labels).every(([label, value]) => one.labels[label] === value));
  return sample ? sample.value : 0;
}

// Returns the sum of all samples of a name.
export function sumValues(metrics, name) {
  return (metrics[name] ?? []).reduce((sum, sample) => sum + sample.value, 0);
}

// Returns a pool for each line of `pools`: {name, min, max, used, ...}, numbers where they are some.
export function readPools(text) {
  return text.split("\n").filter((line) => line).map((line) => {
    const [name, ...words] = line.split(" ");
    const pool = { name };
    for (const word of words) {
      const [key, value] = word.split("=");
      pool[key] = /^\d+$/.test(value) ? Number(value) : value;
    }
    return pool;
  });
}

// Returns a holder or waiter for each line of `sessions`.
export function readSessions(text) {
  return text.split("\n").filter((line) => line).map((line) => {
    const [number, mode, wait, pid, uid, command, since, files] = line.split(" ");
    return {
      number, mode, pid, uid, since, files,
      waits: wait === "waiting",
      command: command.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(parseInt(octal, 8))),
    };
  });
}

// Returns {id, pieces: [{rank, name, offset, bytes, sum}]} of the text `pieces`.
export function readPieces(text) {
  const found = { id: null, pieces: [] };
  const names = new Map();
  for (const line of text.split("\n")) {
    const [word, ...rest] = line.split(" ");
    if (word === "id") [found.id] = rest;
    else if (word === "allocation") names.set(rest[0], rest.slice(2).join(" "));
    else if (word === "piece")
      found.pieces.push({ rank: Number(rest[0]), name: names.get(rest[0]) ?? "", offset: Number(rest[1]), bytes: Number(rest[2]), sum: rest[3] });
  }
  return found;
}

// Returns {tiers, moving: null or {to, done, all}} of the text `residency`.
export function readResidency(text) {
  const [first = "", second = ""] = text.split("\n");
  const found = /^moving (\S+) (\d+) (\d+)/.exec(second);
  return {
    tiers: first ? first.split(" ") : [],
    moving: found && { to: found[1], done: Number(found[2]), all: Number(found[3]) },
  };
}

// Returns the events of whole lines, and the bytes of the line behind them that is not whole.
export function readEvents(text) {
  const end = text.lastIndexOf("\n") + 1;
  const events = [];
  for (const line of text.slice(0, end).split("\n")) {
    try {
      if (line) events.push(JSON.parse(line));
    } catch {
      // Asked for from the middle of a line: its beginning is gone.
    }
  }
  return events;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function sizeText(bytes) {
  if (bytes === null || bytes === undefined || Number.isNaN(bytes)) return "–";
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export const countText = (count, one, several = `${one}s`) => `${count} ${count === 1 ? one : several}`;

export function durationText(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// Returns a name with its control characters visible, and the direction of writing left alone.
export function nameText(name) {
  return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);
}
