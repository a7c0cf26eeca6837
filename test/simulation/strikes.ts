/** The effects of faults. */
import type { Fault } from './plan.ts';
import type { Moment, Town } from './town.ts';
import { world } from './world.ts';

const HOUR_MS = 3_600_000;
/** An idempotency key is kept for a day by the clock of a single server. */
const SKEW_HOURS = { one: [0.5, 8], several: [0.5, 8, 48] };
const MAX_DOWN_MS = 10_000;
const MAX_WAIT_MS = 10_000;
/** A request begins, and a model server responds to it. */
const REQUEST_MS = [50, 600];
/** The server reads a cancellation from the chain. */
const CANCELLED_MS = 10_000;
/** Blocks of a reorganisation. */
const MAX_DROPPED = 9;

/** Members that faults have changed: their values before, and the number of faults in force. */
const changed = new WeakMap<object, Map<string, { readonly before: unknown; count: number }>>();

/** Returns what restores the member of `target` with the end of the last fault. */
function begin(target: object, name: string): () => void {
  const members = changed.get(target) ?? new Map<string, { before: unknown; count: number }>();
  changed.set(target, members);
  const member = members.get(name) ?? { before: Reflect.get(target, name) as unknown, count: 0 };
  members.set(name, member);
  member.count += 1;
  return () => {
    member.count -= 1;
    if (member.count > 0) return;
    Reflect.set(target, name, member.before);
    members.delete(name);
  };
}

/** Lets a fault begin and end. */
export async function strike(town: Town, { kind, forMs, strength }: Fault): Promise<void> {
  const { fareboxes, models, stripe, chain, solana, database } = town;
  const one = <T>(from: readonly T[]): T => from[Math.floor(strength * from.length)]!;
  const farebox = one(fareboxes);
  const { random, weather } = world();
  const model = one(models);
  const databases = database?.machines.map((each) => each.name) ?? [];
  // One lying node at a time: two of the three must agree.
  const nodes = random.pick([town.nodes, town.solanaNodes]);
  const node = kind === 'lying node' ? nodes[0]! : one<(typeof nodes)[number]>(nodes);
  const during = async <T extends object>(target: T, change: Partial<T>): Promise<void> => {
    const ends = Object.keys(change).map((name) => begin(target, name));
    Object.assign(target, change);
    await world().sleep(forMs);
    for (const end of ends) end();
  };
  // Three of four such faults wait for a moment, but not for long.
  const moment = async (wanted: Moment, maxAfterMs: number): Promise<void> => {
    if (random.once(4)) return;
    await Promise.race([town.next(wanted), world().sleep(MAX_WAIT_MS)]);
    await world().sleep(random.between(0, maxAfterMs));
  };
  const request = async (): Promise<void> => {
    const some = random.pick(['request', 'keyed request'] as const);
    await moment(`${some} to ${farebox.url}`, random.pick(REQUEST_MS));
  };
  switch (kind) {
    case 'crash':
      // A step that should be durable, and is not, is lost at this moment.
      await moment('confirmation', 0);
      farebox.crash();
      await world().sleep(Math.min(forMs, MAX_DOWN_MS));
      return farebox.keepRunning();
    case 'restart':
      await farebox.stop();
      return farebox.keepRunning();
    case 'pause':
      await request();
      if (farebox.machine !== undefined) {
        const untilMs = Math.max(farebox.machine.pausedUntilMs, world().nowMs + forMs);
        farebox.machine.pausedUntilMs = untilMs;
      }
      return;
    case 'clock': {
      const { machine } = farebox;
      const hours = random.pick(SKEW_HOURS[database === undefined ? 'one' : 'several']);
      if (machine !== undefined) machine.skewMs = Math.round((2 * strength - 1) * hours * HOUR_MS);
      return;
    }
    case 'reorganisation':
      await moment('cancellation', CANCELLED_MS);
      // A longer branch of the EVM chain wins.
      const chosen = random.pick([chain, solana]);
      return chosen.reorganise(Math.ceil(1 + strength * MAX_DROPPED), chosen === chain ? 1 : 0);
    case 'lagging node':
      return during(node, { frozen: [...node.blocks] as never[] }); // the blocks of its chain
    case 'lying node':
      return during(node, { doesLie: true });
    case 'failing node':
      return during(node, { [random.pick(['failOnce', 'cutOnce'])]: Math.ceil(1 + strength * 4) });
    case 'failover':
      return database?.failOver(Math.min(forMs, MAX_DOWN_MS));
    case 'database pause':
      for (const each of database?.machines ?? []) each.pausedUntilMs = world().nowMs + forMs;
      return;
    case 'lost commits': {
      // Other lost replies end the leases of their server.
      const change = { losesOnce: Math.ceil(1 + strength * 20), losesOnlyCharges: random.once(2) };
      return database && during(database, change);
    }
    case 'full disk':
      return during(weather, { isFull: true });
    case 'slow disk':
      return during(weather, { flushMs: Math.ceil(strength * 2_000) });
    case 'failed flush':
      await during(weather, { failsFlush: true });
      farebox.crash();
      return farebox.keepRunning();
    case 'slow network':
      return during(weather, { delayMs: Math.ceil(strength * 2_000) });
    case 'network cut':
      return during(weather, { cutOnce: Math.ceil(5 + strength * 100) });
    case 'lost database': {
      await request();
      // Without the model servers, a response that has begun breaks off.
      const to = random.once(2) ? { to: databases } : {};
      const from = farebox.machine?.name ?? '';
      return during(weather, { parted: { from, ...to, untilMs: world().nowMs + forMs } });
    }
    case 'partition': {
      const running = fareboxes.flatMap((each) => each.machine?.name ?? []);
      const peers = ['model 9001', 'model 9002', 'card processor', node.machine.name];
      const from = one([...peers, ...running, ...databases]);
      return during(weather, { parted: { from, untilMs: world().nowMs + forMs } });
    }
    case 'slow model':
      return during(model.faults, { slowMs: Math.ceil(strength * 20_000) });
    case 'failing model': {
      // A request fails only if each model server fails.
      const failing = strength < 0.5 ? models : [model];
      const change = { failOnce: Math.ceil(1 + strength * 5) };
      await Promise.all(failing.map((each) => during(each.faults, change)));
      return;
    }
    case 'dead model':
      return during(model.machine, { pausedUntilMs: world().nowMs + forMs });
    case 'card processor': {
      const fates = ['lose-request', 'lose-reply', 'error'] as const;
      return during(stripe, { fate: () => (random.once(3) ? random.pick(fates) : 'pass') });
    }
  }
}
