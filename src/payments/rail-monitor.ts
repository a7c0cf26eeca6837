/**
 * Looks after the rails: gas keys that run dry, a receiver without a token account, a node on another
 * chain. A rail that cannot settle is not offered; each problem is logged once when it appears.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { chainReason } from './chain-reason.ts';
import type { Rail, RailHealth } from './rail.ts';
import type { RailOffer } from './requirements.ts';

export class RailMonitor {
  readonly #rails: ReadonlyMap<string, Rail>;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #health = new Map<string, RailHealth>();
  readonly #reported = new Map<string, string>();

  constructor(rails: ReadonlyMap<string, Rail>, clock: Clock, log: Log) {
    this.#rails = rails;
    this.#clock = clock;
    this.#log = log;
  }

  /** Asks every rail once. Never throws. */
  async check(): Promise<void> {
    await Promise.all([...this.#rails.values()].map(async (rail) => await this.#checkOne(rail)));
  }

  /** The rails to offer. When none can settle, all are: an offer that waits beats an empty list. */
  offers(): readonly RailOffer[] {
    const all = [...this.#rails.values()];
    const ready = all.filter((rail) => this.#health.get(rail.network)?.isReady !== false);
    return (ready.length > 0 ? ready : all).map((rail) => rail.offer);
  }

  /** The last answers, for the status page. */
  health(): readonly RailHealth[] {
    return [...this.#health.values()];
  }

  async #checkOne(rail: Rail): Promise<void> {
    let health: RailHealth;
    try {
      health = await rail.health();
    } catch (error) {
      // A node that does not answer says nothing about the keys: what was offered stays offered.
      const before = this.#health.get(rail.network);
      health = {
        network: rail.network,
        isReady: before?.isReady ?? true,
        problems: [`The node does not answer: ${chainReason(error)}`],
        gasAddress: before?.gasAddress,
        gasBalance: before?.gasBalance,
      };
    }
    this.#health.set(rail.network, health);
    this.#report(health);
  }

  #report(health: RailHealth): void {
    const text = health.problems.join('; ');
    if (this.#reported.get(health.network) === text) return;
    this.#reported.set(health.network, text);
    const fields = {
      network: health.network,
      gasAddress: health.gasAddress,
      gasBalance: health.gasBalance?.toString(),
      atMs: this.#clock.nowMs(),
    };
    if (text === '') this.#log.info(fields, 'A payment rail is ready');
    else if (health.isReady) this.#log.warn(fields, `A payment rail needs care: ${text}`);
    else this.#log.error(fields, `A payment rail is not offered: ${text}`);
  }
}
