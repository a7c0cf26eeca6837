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
import { createHash } from 'node:crypto';
import { type Random, randomOf } from './random.ts';

/** Captured before the edges replace it. */
const realImmediate = setImmediate;

/** A day, a month and a year begin at this time, which most runs contain. */
const NEW_YEAR_MS = Date.UTC(2026, 0, 1);
const MAX_BEFORE_MS = 5 * 60_000;
/** Immediates of one instant; more mean that it never ends. */
const MAX_IMMEDIATES = 200_000;
/** Events between two turns of the real event loop. */
const EVENTS_PER_TURN = 1_000;
const KEPT_LINES = 10_000;
const STORY_LINES = 80;
const MAX_LINE_CHARS = 240;
/** Bytes on the network, and what most callers see. */
const USUAL = /^[\d.]+ .* (?:to .* (?:\d+ bytes|end)|saw 200 )/;

export interface Machine {
  readonly name: string;
  isAlive: boolean;
  /** No event runs before this time of the world. */
  pausedUntilMs: number;
  /** Difference of its wall clock to the time of the world. */
  skewMs: number;
  /** Called when it dies, for example to close its connections. */
  readonly onDeath: Set<() => void>;
}

export interface Timer {
  cancel(): void;
}

interface WorldEvent {
  atMs: number;
  /** Order among events of one instant. */
  readonly order: number;
  readonly machine: Machine;
  readonly run: () => void;
  isCancelled: boolean;
}

/** Ends the run with a message for the reader. */
export class DefectFound extends Error {}

export class World {
  readonly random: Random;
  /** For `Math.random`: libraries draw numbers that no run should depend on. */
  readonly otherRandom: Random;
  readonly seed: string;
  nowMs: number;
  readonly #startedMs: number;
  /** Owner of what belongs to no machine. */
  readonly outside: Machine = machineNamed('world');
  readonly #events: WorldEvent[] = [];
  #immediates: { readonly machine: Machine; readonly run: () => void }[] = [];
  #order = 0;
  readonly #here = new AsyncLocalStorage<Machine>();
  readonly #trace = createHash('sha256');
  readonly #lines: string[] = [];
  onLine: ((line: string) => void) | undefined;
  /** Waits for real work that belongs to this instant. Returns whether there was some. */
  outsideWork: (() => Promise<boolean>) | undefined;
  steps = 0;
  defect: Error | undefined;

  constructor(seed: string) {
    this.seed = seed;
    this.random = randomOf(seed);
    this.otherRandom = randomOf(`other ${seed}`);
    this.#startedMs = NEW_YEAR_MS - this.random.between(0, MAX_BEFORE_MS);
    this.nowMs = this.#startedMs;
  }

  machine(name: string): Machine {
    return machineNamed(name);
  }

  /** The machine whose code runs. */
  get here(): Machine {
    return this.#here.getStore() ?? this.outside;
  }

  on<T>(machine: Machine, work: () => T): T {
    return this.#here.run(machine, work);
  }

  schedule(afterMs: number, run: () => void, machine = this.here): Timer {
    const event: WorldEvent = {
      atMs: this.nowMs + Math.max(0, afterMs),
      order: (this.#order += 1),
      machine,
      run,
      isCancelled: false,
    };
    push(this.#events, event);
    return { cancel: () => (event.isCancelled = true) };
  }

  /** Runs in this instant, after what runs now. */
  immediate(run: () => void, machine = this.here): Timer {
    let isCancelled = false;
    this.#immediates.push({ machine, run: () => (isCancelled ? undefined : run()) });
    return { cancel: () => (isCancelled = true) };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.schedule(ms, resolve));
  }

  /** Adds a line to the trace, whose hash two runs of a seed have in common. */
  note(text: string): void {
    const line = `${((this.nowMs - this.#startedMs) / 1_000).toFixed(3)} ${text}`;
    this.#trace.update(line).update('\n');
    this.onLine?.(line);
    this.#lines.push(line);
    if (this.#lines.length > 2 * KEPT_LINES) this.#lines.splice(0, KEPT_LINES);
  }

  /** The last lines of the trace that a person wants to read: all but what happens all the time. */
  story(): string[] {
    const said = this.#lines.filter((line) => !USUAL.test(line));
    return said.slice(-STORY_LINES).map((line) => line.slice(0, MAX_LINE_CHARS));
  }

  traceHash(): string {
    return this.#trace.copy().digest('hex');
  }

  fail(defect: Error): void {
    this.defect ??= defect;
  }

  kill(machine: Machine): void {
    machine.isAlive = false;
    for (const end of machine.onDeath) end();
    machine.onDeath.clear();
  }

  /** Runs events until `isOver`, or throws the first defect. Returns `false` if no event is left. */
  async run(isOver: () => boolean): Promise<boolean> {
    for (;;) {
      do await inTurn(() => this.#finishInstant());
      while (this.outsideWork !== undefined && (await this.outsideWork()));
      if (this.defect !== undefined) throw this.defect;
      const isOut = await inTurn(() => this.#runEvents(isOver));
      if (isOver()) return true;
      if (isOut) return false;
    }
  }

  /** Runs events of several instants, or of one if real work can belong to it. Returns whether none is left. */
  #runEvents(isOver: () => boolean): boolean {
    for (let left = this.outsideWork === undefined ? EVENTS_PER_TURN : 1; left > 0;) {
      if (this.defect !== undefined || isOver()) return false;
      const event = pop(this.#events);
      if (event === undefined) return true;
      if (event.isCancelled || !event.machine.isAlive) continue;
      if (event.machine.pausedUntilMs > event.atMs) {
        // The order of its events stays.
        event.atMs = event.machine.pausedUntilMs;
        push(this.#events, event);
        continue;
      }
      left -= 1;
      this.nowMs = Math.max(this.nowMs, event.atMs);
      this.steps += 1;
      this.#here.run(event.machine, event.run);
      this.#finishInstant();
    }
    return false;
  }

  /** Lets promises, ticks and immediates of this instant finish. */
  #finishInstant(): void {
    finishTicks();
    for (let ran = 0; this.#immediates.length > 0;) {
      const batch = this.#immediates;
      this.#immediates = [];
      for (const { machine, run } of batch) {
        ran += 1;
        if (ran > MAX_IMMEDIATES) throw new DefectFound('An instant does not end');
        if (!machine.isAlive) continue;
        if (machine.pausedUntilMs > this.nowMs) {
          this.schedule(machine.pausedUntilMs - this.nowMs, run, machine);
          continue;
        }
        this.#here.run(machine, run);
        finishTicks();
      }
    }
  }
}

function machineNamed(name: string): Machine {
  return { name, isAlive: true, pausedUntilMs: 0, skewMs: 0, onDeath: new Set() };
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

/** Runs all ticks and promises, as Node.js does after each of its callbacks, without a turn of the event loop. */
const finishTicks = Reflect.get(process, '_tickCallback') as () => void; // not in the types

function isBefore(one: WorldEvent, other: WorldEvent): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}

/** A binary heap. */
function push(heap: WorldEvent[], event: WorldEvent): void {
  let at = heap.length;
  heap.push(event);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!isBefore(event, heap[parent]!)) break;
    heap[at] = heap[parent]!;
    at = parent;
  }
  heap[at] = event;
}

function pop(heap: WorldEvent[]): WorldEvent | undefined {
  const first = heap[0];
  const last = heap.pop();
  if (first === undefined || last === undefined || heap.length === 0) return first;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
    if (!isBefore(heap[child]!, last)) break;
    heap[at] = heap[child]!;
    at = child;
  }
  heap[at] = last;
  return first;
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
