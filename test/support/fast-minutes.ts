/** Preloaded into a process: speeds up its clock, and timers of at least half a minute, by 60. */
const FACTOR = 60;
const LONG_MS = 30_000;

const now = Date.now.bind(Date);
const startMs = now();
Date.now = () => Math.floor(startMs + (now() - startMs) * FACTOR);

const every = globalThis.setInterval;
globalThis.setInterval = Object.assign(
  (work: () => void, ms = 0) => every(work, ms < LONG_MS ? ms : ms / FACTOR),
  every,
);
