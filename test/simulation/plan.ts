/**
 * The plan of a run, as data: the callers, and the faults with their times. A plan is made from a seed; a
 * shorter one that shows the same defect is easier to read.
 *
 * Two in five seeds leave out half of the kinds of faults and callers, and two more have one or two of
 * each, so that these are frequent and meet in ways that a mixture of everything would not show (swarm
 * testing).
 */
import { randomOf } from './random.ts';

interface FaultType {
  /** How often it is drawn, beside the others. */
  readonly weight: number;
  /** The part that fails. Only one server has a disk with its database; several servers share a database. */
  readonly of: 'server' | 'disk' | 'database' | 'network' | 'peer';
  /** Whether a machine is down until the fault ends, and cannot fail again. */
  readonly isDown?: true;
}

const FAULTS = {
  /** Power loss: what was not flushed may be lost. */
  crash: { weight: 4, of: 'server', isDown: true },
  /** The operator restarts the server. */
  restart: { weight: 1, of: 'server', isDown: true },
  /** The process does not run, as on an overloaded host. */
  pause: { weight: 3, of: 'server' },
  /** The wall clock of the server is set forward or back. */
  clock: { weight: 2, of: 'server' },
  'slow disk': { weight: 2, of: 'disk' },
  /** Writes fail until there is space again. */
  'full disk': { weight: 2, of: 'server' },
  /** A flush fails; the operator restarts the machine. */
  'failed flush': { weight: 1, of: 'disk', isDown: true },
  'slow network': { weight: 2, of: 'network' },
  'network cut': { weight: 2, of: 'network' },
  /** The network holds all data of one machine back, and delivers it at the end. */
  partition: { weight: 2, of: 'network' },
  'slow model': { weight: 2, of: 'peer' },
  'failing model': { weight: 3, of: 'peer' },
  'dead model': { weight: 1, of: 'peer' },
  'card processor': { weight: 2, of: 'peer' },
  /** The chain replaces its newest blocks. */
  reorganisation: { weight: 2, of: 'peer' },
  /** A node shows an old state, possibly of a branch that was dropped. */
  'lagging node': { weight: 1, of: 'peer' },
  'lying node': { weight: 1, of: 'peer' },
  'failing node': { weight: 1, of: 'peer' },
  /** The primary of the database loses power, and the standby takes over. */
  failover: { weight: 2, of: 'database', isDown: true },
  'database pause': { weight: 1, of: 'database' },
  /** Replies to commits are lost. */
  'lost commits': { weight: 3, of: 'database' },
  /** One server does not reach the database, or no machine at all. */
  'lost database': { weight: 3, of: 'database' },
} as const satisfies Record<string, FaultType>;

export type FaultKind = keyof typeof FAULTS;

export function faultType(kind: FaultKind): FaultType {
  return FAULTS[kind];
}

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
  const absent = processes === 1 ? 'database' : 'disk';
  const breadth = random.pick(['all', 'half', 'half', 'few', 'few'] as const);
  const some = <T>(kinds: readonly T[]): readonly T[] => {
    if (breadth === 'few') return [random.pick(kinds), random.pick(kinds)];
    return breadth === 'all' ? kinds : kinds.filter(() => random.once(2));
  };
  const kinds = (Object.keys(FAULTS) as FaultKind[]).filter((kind) => FAULTS[kind].of !== absent);
  const faultKinds = some(kinds).flatMap((kind) =>
    Array.from({ length: FAULTS[kind].weight }, () => kind),
  );
  const betweenMs = random.pick(BETWEEN_FAULTS_MS);
  const faults: Fault[] = [];
  const pauseMs = (): number => random.between(1, 2 * betweenMs);
  for (let atMs = pauseMs(); atMs < durationMs && faultKinds.length > 0; atMs += pauseMs()) {
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
