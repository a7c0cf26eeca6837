/**
 * Opens the rails of the configuration, monitors them while the server runs, and checks them for
 * `farebox check`. The chain libraries are large; each is loaded only if its rail is configured.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import { Contradictions, chainReason } from './chain-log.ts';
import type { EvmRail } from './evm/evm-rail.ts';
import { ExternalFacilitator } from './extensions/external-facilitator.ts';
import type { Rail, RailHealth, RailOptions } from './rail.ts';
import type { RailOffer } from './requirements.ts';
import { type PaymentSettings, evmSettings, paymentNetworks } from './settings.ts';
import type { SolanaRail } from './solana/solana-rail.ts';
import { topUpTransactions } from './top-up-table.ts';

export interface OpenRailsOptions extends Pick<RailOptions, 'store' | 'clock' | 'log' | 'pollMs'> {
  readonly settings: PaymentSettings;
}

/** Rejects if an external facilitator that must name the Solana fee payer does not respond. */
export async function openRails(options: OpenRailsOptions) {
  const { settings, log, clock } = options;
  const { url, ...facilitator } = settings.facilitator;
  const external = url === undefined ? undefined : new ExternalFacilitator(url, facilitator, clock);
  const contradictions = new Contradictions(log, paymentNetworks(settings));
  const railOptions: RailOptions = {
    ...options,
    contradictions,
    external,
    maxTimeoutSeconds: settings.maxTimeoutSeconds,
    settleWaitMs: settings.settleWaitSeconds * SECOND_MS,
  };
  const rails = new Map<string, Rail>();
  const evm: EvmRail[] = [];
  let solana: SolanaRail | undefined;
  const [first, ...further] = evmSettings(settings);
  if (first !== undefined) {
    const { EvmRail } = await import('./evm/evm-rail.ts');
    const contractNetwork = first.network;
    for (const one of [first, ...further]) {
      const rail = new EvmRail(one, { ...railOptions, contractNetwork });
      evm.push(rail);
      rails.set(rail.network, rail);
    }
  }
  if (settings.solana !== undefined) {
    const { openSolanaRail } = await import('./solana/solana-rail.ts');
    solana = await openSolanaRail(settings.solana, railOptions);
    rails.set(solana.network, solana);
  }
  return { rails, evm, solana, external, contradictions };
}

/** Checks gas keys, receivers and nodes; does not offer a rail that cannot settle. */
export class RailMonitor {
  readonly #rails: ReadonlyMap<string, Rail>;
  readonly #log: Log;
  readonly #health = new Map<string, RailHealth>();

  constructor(rails: ReadonlyMap<string, Rail>, log: Log) {
    this.#rails = rails;
    this.#log = log;
  }

  /** Never rejects. */
  async check(): Promise<readonly RailHealth[]> {
    return await Promise.all([...this.#rails.values()].map((rail) => this.#check(rail)));
  }

  /**
   * The rails that can settle; all rails if none can, because a 402 must have at least one option. Rails
   * whose nodes do not respond are last, because clients take the first option that they can pay.
   */
  offers(): readonly RailOffer[] {
    const all = [...this.#rails.values()];
    const ready = all.filter((rail) => this.#health.get(rail.network)?.isReady !== false);
    return (ready.length > 0 ? ready : all)
      .toSorted((a, b) => this.#silence(a) - this.#silence(b))
      .map((rail) => rail.offer);
  }

  /** Whether each network can settle now, as far as it was checked. */
  states(): readonly (readonly [network: string, isReady: boolean])[] {
    return [...this.#health.values()].map(({ network, isReady, isSilent }) => [
      network,
      isReady && isSilent !== true,
    ]);
  }

  #silence(rail: Rail): number {
    return Number(this.#health.get(rail.network)?.isSilent === true);
  }

  async #check(rail: Rail): Promise<RailHealth> {
    const before = this.#health.get(rail.network);
    const health = await rail.health().catch((error: unknown) => ({
      gasAddress: undefined,
      gasBalance: undefined,
      isReady: true,
      // Without the node the state of the keys is unknown, so the earlier state stays.
      ...before,
      network: rail.network,
      isSilent: true,
      problems: [`The node does not respond: ${chainReason(error)}`],
    }));
    this.#health.set(rail.network, health);
    const text = health.problems.join('; ');
    // Each problem is logged once, when it appears.
    if (before === undefined || before.problems.join('; ') !== text) this.#report(health, text);
    return health;
  }

  #report({ network, isReady, gasAddress, gasBalance }: RailHealth, problems: string): void {
    const fields = { network, gasAddress, gasBalance: gasBalance?.toString() };
    if (problems === '') this.#log.info(fields, 'A payment rail is ready');
    else if (isReady) this.#log.warn(fields, `A payment rail has problems: ${problems}`);
    else this.#log.error(fields, `A payment rail is not offered: ${problems}`);
  }
}

interface CheckOptions {
  readonly settings: PaymentSettings;
  readonly clock: Clock;
  readonly log: Log;
  /** Opens the database of this ledger; resolves to `undefined` if there is none yet. */
  readonly openStore: () => Promise<Store | undefined>;
}

const NO_STORE: RailOptions['store'] = {
  query: async () => {
    throw new Error('A check of a rail writes nothing');
  },
};

/** The reason why stakes cannot be read today; `undefined` if they can, or if none is configured. */
export async function checkStaking(
  options: Omit<CheckOptions, 'openStore'>,
): Promise<string | undefined> {
  const { settings, clock, log } = options;
  if (settings.staking === undefined) return undefined;
  const { stakingProblem } = await import('./extensions/staking.ts');
  return await stakingProblem(settings.staking, clock, new Contradictions(log, []));
}

/** The state of every configured rail. Never rejects. */
export async function checkRails(options: CheckOptions): Promise<readonly RailHealth[]> {
  const { base, networks = [], solana, ...rest } = options.settings;
  const single = [
    ...(base === undefined ? [] : [{ network: base.network, settings: { ...rest, base } }]),
    ...networks.map((one) => ({ network: one.network, settings: { ...rest, networks: [one] } })),
    ...(solana === undefined ? [] : [{ network: solana.network, settings: { ...rest, solana } }]),
  ];
  return Promise.all(
    single.map(async ({ network, settings }) => {
      try {
        return await checkRail({ ...options, settings }, network);
      } catch (error) {
        const problems = [`It could not be checked: ${chainReason(error)}`];
        return { network, isReady: false, problems, gasAddress: undefined, gasBalance: undefined };
      }
    }),
  );
}

async function checkRail(options: CheckOptions, network: string): Promise<RailHealth> {
  const opened = await openRails({ ...options, store: NO_STORE, pollMs: 0 });
  // Rejects if the facilitator does not respond.
  await opened.external?.feePayer(network);
  const rail = opened.rails.get(network);
  if (rail === undefined) throw new Error(`No rail is configured for ${network}`);
  const health = await rail.health();
  const foreign = await foreignTransfers(rail, options.openStore);
  return { ...health, problems: [...health.problems, ...foreign] };
}

/**
 * Reports transfers of the last hour to the receiver that are not payments of this ledger: two ledgers
 * with the same receiver would credit each other's payments.
 */
async function foreignTransfers(
  rail: Rail,
  open: CheckOptions['openStore'],
): Promise<readonly string[]> {
  let store: Store | undefined;
  try {
    store = await open();
    const known = store === undefined ? undefined : await topUpTransactions(store, rail.network);
    const latest = await rail.newestHeight();
    const { hourBlocks: recent } = rail;
    const [first, ...others] = await rail.received({
      offer: rail.offer,
      fromHeight: latest > recent ? latest - recent : 0n,
      isKnown: (transaction) => known?.has(transaction) ?? false,
    });
    if (first === undefined) return [];
    return [
      `In the last hour ${rail.offer.payTo} received transfers that are not payments of this ledger: ${others.length + 1}, such as ${first.transaction} (a receiver must belong to one ledger)`,
    ];
  } catch (error) {
    // A node without logs, or a database of another version.
    return [`The transfers of the last hour could not be compared: ${chainReason(error)}`];
  } finally {
    await store?.close();
  }
}
