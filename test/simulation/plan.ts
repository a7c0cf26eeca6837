/**
 * The plan of a run, as data: the callers, and the faults with their times. A plan is made from a seed; a
 * shorter one that shows the same defect is easier to read.
 *
 * Two in five seeds leave out half of the kinds of faults and callers, and two more have one or two of
 * each, so that these are frequent and meet in ways that a mixture of everything would not show (swarm
 * testing).
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
  clock: 2,
  'slow disk': 2,
  /** Writes fail until there is space again. */
  'full disk': 2,
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
  /** Replies to commits are lost. */
  'lost commits': 3,
  /** One server does not reach the database, or no machine at all. */
  'lost database': 3,
} as const;

export type FaultKind = keyof typeof WEIGHTS;

/** Faults of a database that is on machines of its own, and of one that is a file. */
const ONLY_SHARED: ReadonlySet<FaultKind> = new Set([
  'failover',
  'database pause',
  'lost commits',
  'lost database',
]);
const ONLY_FILE: ReadonlySet<FaultKind> = new Set(['slow disk', 'failed flush']);

export interface Fault {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly forMs: number;
  /** Between 0 and 1; its meaning depends on the kind. */
  readonly strength: number;
}

const CALLER_KINDS = [
  'steady',
  'keyed',
  'leaver',
  /** Has credit for a few requests. */
  'poor',
  /** Has a key with a limit. */
  'capped',
  /** Has a key with a limit per day, and a budget that counts half of its requests. */
  'budgeted',
  /** Has a key with few requests per minute. */
  'limited',
  'payer',
] as const;

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
  /** Mean times between two credits of the operator, and between two checkouts. */
  readonly creditEveryMs: number;
  readonly checkoutEveryMs: number;
  readonly wallets: number;
}

const BETWEEN_FAULTS_MS = [5_000, 10_000, 20_000, 40_000];
/** A fault ends soon, outlasts the leases of a server, those of its keys, or most time limits. */
const LASTS_MS = [5_000, 10_000, 20_000, 45_000, 120_000];
/** Most of a run of one server should be requests. On PostgreSQL each takes several times as long. */
const CALLERS = {
  one: { counts: [4, 8, 16], fromMs: 10, toMs: 1_000 },
  several: { counts: [2, 4, 8], fromMs: 20, toMs: 1_000 },
} as const;
const MAX_WALLETS = 3;

export function planOf(seed: string, durationMs: number, processes = 1): Plan {
  const random = randomOf(`plan ${seed}`);
  const absent = processes === 1 ? ONLY_SHARED : ONLY_FILE;
  const breadth = random.pick(['all', 'half', 'half', 'few', 'few'] as const);
  const some = <T>(kinds: readonly T[]): readonly T[] => {
    if (breadth === 'few') return [random.pick(kinds), random.pick(kinds)];
    return breadth === 'all' ? kinds : kinds.filter(() => random.once(2));
  };
  const allFaults = (Object.keys(WEIGHTS) as FaultKind[]).filter((kind) => !absent.has(kind));
  const faultKinds = some(allFaults).flatMap((kind) =>
    Array.from({ length: WEIGHTS[kind] }, () => kind),
  );
  const betweenMs = random.pick(BETWEEN_FAULTS_MS);
  const faults: Fault[] = [];
  for (
    let atMs = random.between(1, 2 * betweenMs);
    atMs < durationMs && faultKinds.length > 0;
    atMs += random.between(1, 2 * betweenMs)
  ) {
    const mostMs = random.pick(LASTS_MS);
    const forMs = random.between(mostMs / 2, mostMs);
    faults.push({ kind: random.pick(faultKinds), atMs, forMs, strength: random.fraction() });
  }
  const people = some([...CALLER_KINDS, 'wallet' as const]);
  const callerKinds = people.filter((kind) => kind !== 'wallet');
  const { counts, fromMs, toMs } = CALLERS[processes === 1 ? 'one' : 'several'];
  const callers = Array.from({ length: random.pick(counts) }, (_, at): CallerPlan => {
    const kind =
      callerKinds[at] ?? random.pick(callerKinds.length > 0 ? callerKinds : (['steady'] as const));
    return { name: `${kind} ${at + 1}`, kind, pauseMs: random.between(fromMs, toMs) };
  });
  return {
    seed,
    durationMs,
    processes,
    faults,
    callers,
    creditEveryMs: random.pick([1_000, 8_000, 60_000]),
    checkoutEveryMs: random.pick([1_000, 10_000]),
    wallets: people.includes('wallet') ? MAX_WALLETS : 0,
  };
}

/**
 * Leaves out faults and callers, halves first and then one by one, and ends the run earlier, as long as
 * the run still fails. Returns the shortest plan that was found.
 */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>): Promise<Plan> {
  let shortest = plan;
  const attempt = async (shorter: Plan): Promise<boolean> => {
    if (!(await fails(shorter))) return false;
    shortest = shorter;
    return true;
  };
  while (shortest.durationMs > 1_000) {
    const durationMs = Math.ceil(shortest.durationMs / 2);
    const faults = shortest.faults.filter(({ atMs }) => atMs < durationMs);
    if (!(await attempt({ ...shortest, durationMs, faults }))) break;
  }
  for (const member of ['faults', 'callers'] as const) {
    let size = Math.ceil(shortest[member].length / 2);
    while (size >= 1) {
      let at = 0;
      while (at < shortest[member].length) {
        const list: readonly unknown[] = shortest[member];
        const without = [...list.slice(0, at), ...list.slice(at + size)];
        if (!(await attempt({ ...shortest, [member]: without }))) at += size;
      }
      size = size === 1 ? 0 : Math.ceil(size / 2);
    }
  }
  return shortest;
}
