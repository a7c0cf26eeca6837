/**
 * Virtual time. A world has machines (servers, model servers, clients) and one queue of events, each
 * of which belongs to a machine. The world runs one event at a time, and lets everything that it
 * caused in the same instant finish before the next one: promises, `process.nextTick` and
 * `setImmediate`. So a run depends on its seed alone.
 *
 * A machine can be paused (its events wait), killed (they are dropped), and its clock can
 * differ from the time of the world.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { createHash, hash } from 'node:crypto';
import { writeSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import { type Random, randomOf } from './random.ts';

/** Captured before the edges replace it. */
const realImmediate = setImmediate;

/** A day, a month and a year begin at this time, which most runs contain. */
export const NEW_YEAR_MS = Date.UTC(2026, 0, 1);
const MAX_BEFORE_MS = 5 * 60_000;
/** Immediates of one instant; more mean that it never ends. */
const MAX_IMMEDIATES = 200_000;
/** Instants between two turns of the real event loop. */
const INSTANTS_PER_TURN = 1_000;
const KEPT_LINES = 10_000;
const STORY_LINES = 80;
/** The trace has the begin of a longer text, and its hash. */
const LONG_CHARS = 64 * 1_024;
const MAX_LINE_CHARS = 240;
/** Bytes on the network, and what most callers see. */
const USUAL = /^[\d.]+ .* (?:to .* (?:\d+ bytes|end)|saw 200 )/;

const running = new AsyncLocalStorage<Machine>();

export class Machine {
  readonly name: string;
  isAlive = true;
  /** No event runs before this time of the world. */
  pausedUntilMs = 0;
  /** Difference of its wall clock to the time of the world. */
  skewMs = 0;
  /** Connections that wait for a request, by port. */
  readonly idle: Record<string, Socket[]> = {};
  /** Called when it dies, for example to close its connections. */
  readonly onDeath = new Set<() => void>();
  /** Resolves when it dies. */
  readonly died = new Promise<undefined>((resolve) => {
    this.onDeath.add(() => resolve(undefined));
  });
  /** Runs code as code of this machine. */
  readonly run: <T>(work: () => T) => T;

  constructor(name: string) {
    this.name = name;
    // One context for all of its events.
    this.run = running.run(this, () => AsyncLocalStorage.snapshot());
  }
}

/** Work that a machine does later. */
export class Timer {
  readonly machine: Machine;
  #work: (() => void) | undefined;

  constructor(machine: Machine, work: () => void) {
    this.machine = machine;
    this.#work = work;
  }

  run(): void {
    if (this.#work !== undefined) this.machine.run(this.#work);
  }

  cancel(): void {
    this.#work = undefined;
  }
}

/** State of the network and the disks, which faults change. */
interface Weather {
  /** A message takes at most so long. */
  delayMs: number;
  /** One write in so many cuts its connection; 0 for none. */
  cutOnce: number;
  /** Separates a machine from these others, or from all. */
  parted:
    | { readonly from: string; readonly to?: readonly string[]; readonly untilMs: number }
    | undefined;
  /** A flush takes at most so long. */
  flushMs: number;
  failsFlush: boolean;
  /** Whether nothing can be written. */
  isFull: boolean;
}

export const FAIR: Readonly<Weather> = {
  delayMs: 2,
  cutOnce: 0,
  parted: undefined,
  flushMs: 1,
  failsFlush: false,
  isFull: false,
};

/** Ends the run with a message for the reader. */
export class DefectFound extends Error {}

export class World {
  readonly random: Random;
  /** For `Math.random`: libraries draw numbers that no run should depend on. */
  readonly otherRandom: Random;
  readonly seed: string;
  nowMs: number;
  readonly #startedMs: number;
  readonly weather: Weather = { ...FAIR };
  /** By port. */
  readonly listeners = new Map<number, { readonly machine: Machine; readonly server: Server }>();
  /** Owner of what belongs to no machine. */
  readonly outside = new Machine('world');
  /** Times with events, the latest first. */
  readonly #times: number[] = [];
  readonly #events = new Map<number, Timer[]>();
  #immediates: Timer[] = [];
  readonly #trace = createHash('sha256');
  readonly #lines: string[] = [];
  onLine: ((line: string) => void) | undefined;
  /** Waits for real work that belongs to this instant. Returns whether there was some. */
  outsideWork: (() => Promise<boolean>) | undefined;
  defect: Error | undefined;

  constructor(seed: string) {
    this.seed = seed;
    this.random = randomOf(seed);
    this.otherRandom = randomOf(`other ${seed}`);
    this.#startedMs = NEW_YEAR_MS - this.random.between(0, MAX_BEFORE_MS);
    this.nowMs = this.#startedMs;
  }

  /** The machine whose code runs. */
  get here(): Machine {
    return running.getStore() ?? this.outside;
  }

  get passedMs(): number {
    return this.nowMs - this.#startedMs;
  }

  get seconds(): number {
    return Math.floor(this.nowMs / 1_000);
  }

  schedule(afterMs: number, run: () => void, machine = this.here): Timer {
    const event = new Timer(machine, run);
    this.#add(this.nowMs + Math.max(0, Math.floor(afterMs)), event);
    return event;
  }

  /** Runs in this instant, after what runs now. */
  immediate(run: () => void, machine = this.here): Timer {
    const event = new Timer(machine, run);
    this.#immediates.push(event);
    return event;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.schedule(ms, resolve));
  }

  /** Adds a line to the trace, whose hash two runs of a seed have in common. */
  note(text: string): void {
    const said =
      text.length < LONG_CHARS ? text : `${text.slice(0, MAX_LINE_CHARS)} ${hash('sha256', text)}`;
    const line = `${(this.passedMs / 1_000).toFixed(3)} ${said}\n`;
    this.onLine?.(line);
    this.#lines.push(line);
    if (this.#lines.length < 2 * KEPT_LINES) return;
    this.#trace.update(this.#lines.splice(0, KEPT_LINES).join(''));
  }

  /** The last lines of the trace that a person wants to read: all but what happens all the time. */
  story(): string[] {
    const said = this.#lines.filter((line) => !USUAL.test(line));
    return said.slice(-STORY_LINES).map((line) => line.slice(0, MAX_LINE_CHARS).trimEnd());
  }

  traceHash(): string {
    return this.#trace.copy().update(this.#lines.join('')).digest('hex');
  }

  fail(defect: Error): void {
    this.defect ??= defect;
  }

  kill(machine: Machine): void {
    machine.isAlive = false;
    for (const end of machine.onDeath) end();
    machine.onDeath.clear();
  }

  /** Runs events until `isOver`, or throws the first defect. */
  async run(isOver: () => boolean): Promise<void> {
    await inTurn(() => this.#finishInstant());
    while (this.defect === undefined && !isOver()) {
      while (this.outsideWork !== undefined && (await this.outsideWork()))
        await inTurn(() => this.#finishInstant());
      await inTurn(() => this.#runEvents(isOver));
    }
    if (this.defect !== undefined) throw this.defect;
  }

  /** Runs many instants, or one if real work can belong to it. */
  #runEvents(isOver: () => boolean): void {
    for (let left = this.outsideWork === undefined ? INSTANTS_PER_TURN : 1; left > 0; left -= 1) {
      if (this.defect !== undefined || isOver()) return;
      const atMs = this.#times.pop();
      if (atMs === undefined) throw new DefectFound('Nothing happens any more before the end');
      this.nowMs = atMs;
      const due = this.#events.get(atMs) ?? [];
      this.#events.delete(atMs);
      this.#runAll(due);
      this.#finishInstant();
    }
  }

  /** Lets promises, ticks and immediates of this instant finish. */
  #finishInstant(): void {
    finishTicks();
    for (let ran = 0; this.#immediates.length > 0;) {
      const batch = this.#immediates;
      this.#immediates = [];
      ran += batch.length;
      if (ran > MAX_IMMEDIATES) throw new DefectFound('An instant does not end');
      this.#runAll(batch);
    }
  }

  #runAll(events: readonly Timer[]): void {
    for (const event of events) {
      const { isAlive, pausedUntilMs } = event.machine;
      if (!isAlive) continue;
      if (pausedUntilMs > this.nowMs) {
        this.#add(pausedUntilMs, event);
        continue;
      }
      event.run();
      finishTicks();
    }
  }

  #add(atMs: number, event: Timer): void {
    const due = this.#events.get(atMs);
    if (due !== undefined) return void due.push(event);
    this.#events.set(atMs, [event]);
    let [from, to] = [0, this.#times.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#times[middle]! > atMs) from = middle + 1;
      else to = middle;
    }
    this.#times.splice(from, 0, atMs);
  }
}

/** Runs `work` in a turn of the event loop, outside of all promises and ticks. */
function inTurn<T>(work: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    realImmediate(() => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    });
  });
}

const tickCallback = Reflect.get(process, '_tickCallback') as () => void; // not in the types

/** Runs all ticks and promises, as Node.js does after each of its callbacks, without a turn of the event loop. */
function finishTicks(): void {
  try {
    tickCallback();
  } catch (error) {
    // Node.js then ends the process, without this error.
    const { stack } = error as Error;
    writeSync(process.stderr.fd, `seed ${world().seed}: uncaught exception: ${stack}\n`);
    throw error;
  }
}

const current: { world: World | undefined } = { world: undefined };

/** The world of the run. */
export function world(): World {
  if (current.world === undefined) throw new Error('There is no world');
  return current.world;
}

/** From now on the edges belong to `next`. */
export function enter(next: World): void {
  current.world = next;
}
