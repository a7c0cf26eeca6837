/**
 * The plan of a run, as data: the callers, and the faults with their times. A plan is made from a seed; a
 * shorter one that shows the same defect is easier to read (`shrink.ts`).
 */
import { randomOf } from './random.ts';

/** How often a kind of fault is drawn, beside the others. */
const WEIGHTS = {
  /** Power loss: what was not flushed may be lost. */
  crash: 4,
  /** The operator restarts the server. */
  restart: 1,
  /** The process does not run, as on an overloaded host. */
  pause: 3,
  /** The wall clock of the server is set forward or back. */
  clock: 1,
  'slow disk': 2,
  /** A flush fails; the operator restarts the machine. */
  'failed flush': 1,
  'slow network': 2,
  'network cut': 2,
  /** The network holds all data of one machine back, and delivers it at the end. */
  partition: 2,
  'slow model': 2,
  'failing model': 3,
  'dead model': 1,
  'card processor': 2,
  /** The chain replaces its newest blocks. */
  reorganisation: 2,
  /** A node shows an old state, possibly of a branch that was dropped. */
  'lagging node': 1,
  'lying node': 1,
  'failing node': 1,
  /** The primary of the database loses power, and the standby takes over. */
  failover: 2,
  'database pause': 1,
} as const;

export type FaultKind = keyof typeof WEIGHTS;

/** Faults of a database that is on machines of its own, and of one that is a file. */
const ONLY_SHARED: ReadonlySet<FaultKind> = new Set(['failover', 'database pause']);
const ONLY_FILE: ReadonlySet<FaultKind> = new Set(['slow disk', 'failed flush']);

export interface Fault {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly forMs: number;
  /** Between 0 and 1; its meaning depends on the kind. */
  readonly strength: number;
}

const CALLER_KINDS = ['steady', 'keyed', 'leaver', 'poor', 'capped', 'payer'] as const;

export type CallerKind = (typeof CALLER_KINDS)[number];

export interface CallerPlan {
  readonly name: string;
  readonly kind: CallerKind;
  /** Mean time between two requests of the caller. */
  readonly pauseMs: number;
}

export interface Plan {
  readonly seed: string;
  readonly durationMs: number;
  /** One uses SQLite, several use PostgreSQL. */
  readonly processes: number;
  readonly faults: readonly Fault[];
  readonly callers: readonly CallerPlan[];
}

const MEAN_BETWEEN_FAULTS_MS = 20_000;
const CALLERS = 8;
const MINUTE_MS = 60_000;

export function planOf(seed: string, durationMs: number, processes = 1): Plan {
  const random = randomOf(`plan ${seed}`);
  const absent = processes === 1 ? ONLY_SHARED : ONLY_FILE;
  const kinds = (Object.keys(WEIGHTS) as FaultKind[])
    .filter((kind) => !absent.has(kind))
    .flatMap((kind) => Array.from({ length: WEIGHTS[kind] }, () => kind));
  const faults: Fault[] = [];
  for (
    let atMs = random.between(1, 2 * MEAN_BETWEEN_FAULTS_MS);
    atMs < durationMs;
    atMs += random.between(1, 2 * MEAN_BETWEEN_FAULTS_MS)
  ) {
    const isLong = random.once(5);
    const forMs = isLong ? random.between(1_000, 2 * MINUTE_MS) : random.between(1, 5_000);
    faults.push({ kind: random.pick(kinds), atMs, forMs, strength: random.fraction() });
  }
  const callers = Array.from({ length: CALLERS }, (_, at): CallerPlan => {
    const kind = at < CALLER_KINDS.length ? CALLER_KINDS[at]! : random.pick(CALLER_KINDS);
    return { name: `${kind} ${at + 1}`, kind, pauseMs: random.between(50, 3_000) };
  });
  return { seed, durationMs, processes, faults, callers };
}
