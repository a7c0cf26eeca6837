/**
 * Opens the rails of the configuration and the external facilitator, where one is named, and asks
 * them how they are: for an operator who checks before starting, once, without writing to a database
 * or a chain. The chain libraries are large; they are loaded only for rails that are configured.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import { Contradictions } from './contradictions.ts';
import { chainReason } from './chain-reason.ts';
import type { EvmRail } from './evm/evm-rail.ts';
import { ExternalFacilitator } from './external-facilitator.ts';
import type { Rail, RailHealth, RailOptions } from './rail.ts';
import type { PaymentSettings } from './settings.ts';
import { topUpTransactions } from './top-up-table.ts';

export interface OpenedRails {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly evm: EvmRail | undefined;
  /** `undefined` where the embedded one settles. */
  readonly external: ExternalFacilitator | undefined;
  /** What the nodes of all rails have contradicted each other about. */
  readonly contradictions: Contradictions;
}

export interface OpenRailsOptions extends Pick<RailOptions, 'store' | 'clock' | 'log' | 'pollMs'> {
  readonly settings: PaymentSettings;
}

/** Rejects when an external facilitator that must name the Solana fee payer does not answer. */
export async function openRails(options: OpenRailsOptions): Promise<OpenedRails> {
  const { settings, store, clock, log, pollMs } = options;
  const { url, ...facilitator } = settings.facilitator;
  const external = url === undefined ? undefined : new ExternalFacilitator(url, facilitator);
  const networks = [settings.base?.network, settings.solana?.network];
  const contradictions = new Contradictions(
    log,
    networks.filter((network) => network !== undefined),
  );
  const railOptions: RailOptions = {
    contradictions,
    store,
    clock,
    log,
    pollMs,
    maxTimeoutSeconds: settings.maxTimeoutSeconds,
    settleWaitMs: settings.settleWaitSeconds * SECOND_MS,
    external,
  };
  const rails = new Map<string, Rail>();
  let evm: EvmRail | undefined;
  if (settings.base !== undefined) {
    const { EvmRail } = await import('./evm/evm-rail.ts');
    evm = new EvmRail(settings.base, railOptions);
    rails.set(evm.network, evm);
  }
  if (settings.solana !== undefined) {
    const { openSolanaRail } = await import('./solana/solana-rail.ts');
    const solana = await openSolanaRail(settings.solana, railOptions);
    rails.set(solana.network, solana);
  }
  return { rails, evm, external, contradictions };
}

export interface AskRailsOptions {
  readonly settings: PaymentSettings;
  readonly clock: Clock;
  readonly log: Log;
  /** Opens the database of this ledger; gives `undefined` before its first start. */
  readonly openStore: () => Promise<Store | undefined>;
}

/** About an hour of Base; an hour of Solana has four times as many slots. */
const RECENT = { eip155: 1_800n, solana: 9_000n } as const;

const refuse = async (): Promise<never> => {
  throw new Error('A question to a rail writes nothing');
};
const NO_STORE: Store = {
  dialect: 'sqlite',
  readerFor: () => ({ query: refuse, run: refuse }),
  query: refuse,
  run: refuse,
  transaction: refuse,
  migrate: refuse,
  unavailable: () => undefined,
  close: async () => undefined,
};

/** Why no stake can be read today; `undefined` when it can, or when none is configured. Never rejects. */
export async function askStaking(
  options: Omit<AskRailsOptions, 'openStore'>,
): Promise<string | undefined> {
  const { settings, clock, log } = options;
  if (settings.staking === undefined) return undefined;
  const { stakingProblem } = await import('./staking.ts');
  return await stakingProblem(settings.staking, clock, new Contradictions(log, []));
}

/** The state of every configured rail; one that cannot be asked is not ready. Never rejects. */
export async function askRails(options: AskRailsOptions): Promise<readonly RailHealth[]> {
  const { base, solana, ...rest } = options.settings;
  const single = [
    ...(base === undefined ? [] : [{ network: base.network, settings: { ...rest, base } }]),
    ...(solana === undefined ? [] : [{ network: solana.network, settings: { ...rest, solana } }]),
  ];
  return Promise.all(
    single.map(async ({ network, settings }) => {
      try {
        return await askRail({ ...options, settings }, network);
      } catch (error) {
        // The reason is the answer.
        const problems = [`It cannot be asked: ${chainReason(error)}`];
        return { network, isReady: false, problems, gasAddress: undefined, gasBalance: undefined };
      }
    }),
  );
}

async function askRail(options: AskRailsOptions, network: string): Promise<RailHealth> {
  const { settings, clock, log } = options;
  // Nothing is sent, so nothing is polled.
  const opened = await openRails({ settings, clock, log, store: NO_STORE, pollMs: 0 });
  // A facilitator that is away settles nothing, whatever the chain says.
  await opened.external?.feePayer(network);
  const rail = opened.rails.get(network);
  if (rail === undefined) throw new Error(`There is no rail for ${network}`);
  const health = await rail.health();
  const strangers = await strangersAt(rail, options.openStore);
  return { ...health, problems: [...health.problems, ...strangers] };
}

/**
 * Says when transfers of the last hour to the receiver are none of this ledger's: another ledger
 * with the same receiver would credit what is paid here, and this one what is paid there.
 */
async function strangersAt(
  rail: Rail,
  open: AskRailsOptions['openStore'],
): Promise<readonly string[]> {
  let store: Store | undefined;
  try {
    store = await open();
    const known = store === undefined ? undefined : await topUpTransactions(store, rail.network);
    const latest = await rail.newestHeight();
    const recent = rail.network.startsWith('solana:') ? RECENT.solana : RECENT.eip155;
    const [first, ...others] = await rail.received({
      offer: rail.offer,
      fromHeight: latest > recent ? latest - recent : 0n,
      isKnown: (transaction) => known?.has(transaction) ?? false,
    });
    if (first === undefined) return [];
    return [
      `Transfers of the last hour to ${rail.offer.payTo} that are not of this ledger: ${others.length + 1}, such as ${first.transaction} (a receiver belongs to one ledger)`,
    ];
  } catch (error) {
    // A node that keeps no log, or a database that this version has never opened.
    return [`The transfers of the last hour cannot be compared: ${chainReason(error)}`];
  } finally {
    await store?.close();
  }
}
