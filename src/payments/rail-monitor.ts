/**
 * Looks after the rails: gas keys that run dry, a receiver without a token account, a node on another
 * chain. A rail that cannot settle is not offered; each problem is logged once when it appears.
 */
import type { Log } from '../core/log.ts';
import { chainReason } from './chain-reason.ts';
import type { Rail, RailHealth } from './rail.ts';
import type { RailOffer } from './requirements.ts';

export class RailMonitor {
  readonly #rails: ReadonlyMap<string, Rail>;
  readonly #log: Log;
  readonly #health = new Map<string, RailHealth>();

  constructor(rails: ReadonlyMap<string, Rail>, log: Log) {
    this.#rails = rails;
    this.#log = log;
  }

  /** Asks every rail once, and gives their answers. Never throws. */
  async check(): Promise<readonly RailHealth[]> {
    return await Promise.all([...this.#rails.values()].map((rail) => this.#check(rail)));
  }

  /** The rails to offer. When none can settle, all are: an offer that waits beats an empty list. */
  offers(): readonly RailOffer[] {
    const all = [...this.#rails.values()];
    const ready = all.filter((rail) => this.#health.get(rail.network)?.isReady !== false);
    return (ready.length > 0 ? ready : all).map((rail) => rail.offer);
  }

  async #check(rail: Rail): Promise<RailHealth> {
    const { network } = rail;
    const before = this.#health.get(network);
    const health = await rail.health().catch((error: unknown) => ({
      // A node that does not answer says nothing about the keys: what was offered stays offered.
      network,
      isReady: before?.isReady ?? true,
      problems: [`The node does not answer: ${chainReason(error)}`],
      gasAddress: before?.gasAddress,
      gasBalance: before?.gasBalance,
    }));
    this.#health.set(network, health);
    const text = health.problems.join('; ');
    if (before === undefined || before.problems.join('; ') !== text) this.#report(health, text);
    return health;
  }

  #report({ network, isReady, gasAddress, gasBalance }: RailHealth, problems: string): void {
    const fields = { network, gasAddress, gasBalance: gasBalance?.toString() };
    if (problems === '') this.#log.info(fields, 'A payment rail is ready');
    else if (isReady) this.#log.warn(fields, `A payment rail needs care: ${problems}`);
    else this.#log.error(fields, `A payment rail is not offered: ${problems}`);
  }
}
