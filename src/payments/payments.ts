/**
 * Paying from a wallet (x402) and signing in with one: the public file of this folder.
 *
 * It owns the 402 objects, sign-in proofs and wallet tokens, top-ups, refunds and the rails. It knows
 * no HTTP server and no ledger: the caller passes the ledger's postings, which run inside the database
 * transactions of this folder, so that a credit and the row that records it are written together.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Contradictions, chainReason } from './chain-log.ts';
import { CreditMonitor } from './credit-monitor.ts';
import type { EvmRail } from './evm/evm-rail.ts';
import { recordGas } from './gas.ts';
import { MachinePayments } from './extensions/mpp.ts';
import { openSigning } from './extensions/signing.ts';
import type { StakingReader } from './extensions/staking.ts';
import { USDC_DECIMALS, wrongDecimals } from './networks.ts';
import { PaymentHeaders } from './payment-headers.ts';
import type { PaymentServices, PaymentsOptions } from './payment-options.ts';
import { PaymentPasses } from './payment-passes.ts';
import { RailMonitor, openRails } from './rails.ts';
import { Refunds } from './refunds.ts';
import { Requirements } from './requirements.ts';
import { sharedSecret } from './secrets.ts';
import { readAmounts } from './settings.ts';
import { KeyChallenges } from './sign-in/key-challenges.ts';
import { SignIn } from './sign-in/sign-in.ts';
import { WalletTokens } from './sign-in/wallet-tokens.ts';
import { TopUpTable, UNFINISHED, WATCHED } from './top-up-table.ts';
import { TopUps } from './top-ups.ts';

export { remember } from './bounded.ts';
export { type ChainAuditReport, auditChains } from './chain-audit.ts';
export type { ExposedFacilitator } from './extensions/exposed-facilitator.ts';
export { type CredentialField, isPaymentCredential, paymentReceipt } from './extensions/mpp.ts';
export {
  type PublishedKey,
  PUBLISHED_BEFORE_MS,
  listSigningKeys,
  rotateSigningKey,
} from './extensions/signing-keys.ts';
export { type Signing, openSigning } from './extensions/signing.ts';
export { type Verification, type VerifiedItem, verifySigned } from './extensions/verify.ts';
export { PAYMENTS_MIGRATIONS } from './migrations.ts';
export { explorerUrl, isEvm, ledgerNetwork } from './networks.ts';
export type { LedgerPostings, PaymentsOptions } from './payment-options.ts';
export type { RetryProof } from './payment-passes.ts';
export { type Gas, readGas } from './gas.ts';
export type { RailHealth } from './rail.ts';
export { checkRails, checkStaking } from './rails.ts';
export { type OpenCredit, type RefundState, sumOf } from './refunds.ts';
export { authOptions, MANIFEST_PATH } from './requirements.ts';
export type {
  Discovered,
  OfferKind,
  PaymentRequiredResponse,
  Resource,
  WalletCredit,
} from './requirements.ts';
export { type PaymentSettings, paymentNetworks } from './settings.ts';
export type { TokenLimits } from './sign-in/wallet-tokens.ts';
export { type TopUpDetail, isStuck, listTopUps, topUpById } from './top-up-list.ts';
export type { CreditEntry, TopUpReceipt } from './top-up-records.ts';

/** The lease of a process that ended expires after this time; a live process renews it. */
const LEASE_MS = 15 * SECOND_MS;
const MAX_UNFINISHED = 20;
const MAX_WATCHED = 50;
const SWEEP_EVERY_MS = 10 * SECOND_MS;
const CHECK_RAILS_EVERY_MS = 5 * MINUTE_MS;
const PRUNE_EVERY_MS = MINUTE_MS;

export type Payments = Awaited<ReturnType<typeof openPayments>>;

/** Throws 503 if the operator takes no payments. */
export function requirePayments(payments: Payments | undefined): Payments {
  if (payments !== undefined) return payments;
  throw new Fault('X402_NOT_CONFIGURED');
}

/**
 * Opens the rails of the configuration and what works on them. Rejects without a rail, if a token has
 * other decimals than amounts are counted in, and if a required facilitator does not respond.
 */
export async function openPayments(options: PaymentsOptions) {
  const { store, clock, ids, log, settings, publicUrl } = options;
  const { services, basePath, evm, solana, railMonitor, contradictions } =
    await openServices(options);
  const { amounts, signing, table, rails } = services;
  const secretOf = (name: string): Promise<string> =>
    sharedSecret(store, name, () => ids.bytes(32).toString('base64url'));
  const offers = () => railMonitor.offers();
  const { maxTimeoutSeconds } = settings;
  const topUps = new TopUps(services);
  const creditMonitor = new CreditMonitor(services);
  const refunds = new Refunds(services, creditMonitor);
  const passes = new PaymentPasses(store, clock, await secretOf('payment-claim'));
  const { isContractSignature } = evm[0] ?? {};
  const chains = [...rails.keys()];
  const signIn = new SignIn({ store, clock, log, publicUrl, chains, isContractSignature });
  const sessions = new WalletTokens({
    store,
    clock,
    ids,
    secret: await secretOf('wallet-token'),
    caps: options.tokenCaps,
    lifeMs: settings.sessionMinutes * MINUTE_MS,
    prefix: options.tokenPrefix,
  });
  const wallets = { topUps, creditMonitor, refunds, signIn, sessions, passes };
  const ofNetwork = (network: string): Promise<void> => recordGas(services, network);
  return {
    /** In nano-USD. */
    amounts,
    /** How often the nodes of each network have contradicted each other since the start. */
    contradictions: contradictions.counts as ReadonlyMap<string, number>,
    /** `undefined` unless the configuration exposes it. Loads large libraries. */
    facilitator: settings.facilitator.expose
      ? new (await import('./extensions/exposed-facilitator.ts')).ExposedFacilitator(services)
      : undefined,
    headers: new PaymentHeaders(services, topUps, passes),
    keyChallenges: new KeyChallenges({
      secret: await secretOf('key-challenge'),
      signIn,
      clock,
      ids,
    }),
    /** The Machine Payments Protocol; `undefined` unless the configuration offers it. */
    mpp: settings.mpp
      ? new MachinePayments({
          secret: await secretOf('mpp-challenge'),
          realm: new URL(publicUrl).host,
          maxTimeoutSeconds,
          clock,
          ids,
          offers,
        })
      : undefined,
    railMonitor,
    refunds,
    requirements: new Requirements({
      ...options,
      basePath,
      amounts,
      maxTimeoutSeconds,
      signing,
      refundNetworks: [...rails.values()].flatMap((rail) => (rail.refunds ? rail.network : [])),
      headerBytes: settings.requiredHeaderBytes,
      offers,
    }),
    sessions,
    signIn,
    signing,
    solana,
    /** Today's credit of a wallet's stake; `undefined` without a contract or a stake that can be read. */
    stakedCredit: await stakingReader(options, contradictions),
    table,
    topUps,
    ...backgroundJobs(services, { ...wallets, evm, railMonitor, recordGas: ofNetwork }),
  };
}

async function openServices(options: PaymentsOptions) {
  const { store, clock, ids, log, settings, publicUrl } = options;
  const { basePath = '/api/v1', pollMs = SECOND_MS, leaseMs = LEASE_MS } = options;
  const { rails, ...opened } = await openRails({ store, clock, log, settings, pollMs });
  if (rails.size === 0) throw new Fault('X402_NOT_CONFIGURED');
  await Promise.all(
    [...rails.values()].map(async (rail) => {
      // A token that cannot be read now is read before it takes a payment.
      const decimals = await rail.decimals().catch(() => USDC_DECIMALS);
      if (decimals !== USDC_DECIMALS) throw new Error(wrongDecimals(rail.offer.asset, decimals));
    }),
  );
  const { receipts, signingKey: configured, settleWaitSeconds } = settings;
  const owner = ids.hex(8);
  const services: PaymentServices = {
    ...options,
    rails,
    owner,
    pollMs,
    leaseMs,
    amounts: readAmounts(settings),
    settleWaitMs: settleWaitSeconds * SECOND_MS,
    signing: receipts
      ? await openSigning({ store, clock, publicUrl, basePath, configured })
      : undefined,
    table: new TopUpTable({ store, clock, log, owner, leaseMs }),
  };
  return { ...opened, services, basePath, railMonitor: new RailMonitor(rails, log) };
}

async function stakingReader(
  { settings: { staking }, clock, log }: PaymentsOptions,
  contradictions: Contradictions,
): Promise<StakingReader> {
  if (staking === undefined) return async () => undefined;
  const { openStakingReader } = await import('./extensions/staking.ts');
  return openStakingReader(staking, clock, log, contradictions);
}

interface BackgroundParts {
  readonly evm: readonly EvmRail[];
  readonly recordGas: (network: string) => Promise<void>;
  readonly railMonitor: RailMonitor;
  readonly topUps: TopUps;
  readonly creditMonitor: CreditMonitor;
  readonly refunds: Refunds;
  readonly signIn: SignIn;
  readonly sessions: WalletTokens;
  readonly passes: PaymentPasses;
}

/** A job that fails is logged and runs again at its next time. */
function backgroundJobs({ clock, log, table, rails }: PaymentServices, parts: BackgroundParts) {
  const { evm, railMonitor, topUps, creditMonitor, refunds, signIn, sessions, passes } = parts;
  const timers: (() => void)[] = [];
  const running = new Map<string, Promise<void>>();
  const start = async (name: string, job: () => Promise<void> | undefined): Promise<void> => {
    try {
      await job();
    } catch (error) {
      log.error({ reason: chainReason(error) }, `The ${name} of payments failed`);
    }
    running.delete(name);
  };
  /** A job that is still running is joined, not started a second time. */
  const run = async (name: string, job: () => Promise<void> | undefined): Promise<void> => {
    const done = running.get(name) ?? start(name, job);
    running.set(name, done);
    await done;
  };
  /** Each network has its own jobs, so that a chain whose nodes are slow or down delays no other. */
  const sweepNetwork = async (network: string): Promise<void> => {
    const unfinished = [`${UNFINISHED} AND network = $4`, [network]] as const;
    const watched = [`${WATCHED} AND network = $4`, [network]] as const;
    const topUpJob = run(`sweep of ${network}`, async () => {
      const rows = await table.due(MAX_UNFINISHED, ...unfinished);
      for (const row of rows) await topUps.finish(row);
    });
    // Does not wait for the transactions of other payments: a credit that is gone must not be spent.
    const creditJob = run(`check of credits of ${network}`, async () => {
      const rows = await table.due(MAX_WATCHED, ...watched);
      for (const row of rows) await creditMonitor.check(row.payment_key);
    });
    const refundJob = run(`refund job of ${network}`, async () => {
      const rows = await refunds.table.due(MAX_UNFINISHED, ...unfinished);
      rows.push(...(await refunds.table.due(MAX_WATCHED, ...watched)));
      for (const row of rows) await refunds.finish(row);
    });
    const gasJob = run(`gas job of ${network}`, () => parts.recordGas(network));
    await Promise.all([topUpJob, creditJob, refundJob, gasJob]);
  };
  const sweep = async (): Promise<void> => {
    await Promise.all([...rails.keys()].map(sweepNetwork));
  };
  const replaceStuck = async (): Promise<void> => {
    const jobs = evm.map(({ network, sender }) =>
      run(`fee job of ${network}`, () => sender?.feeReplacement.run()),
    );
    await Promise.all(jobs);
  };
  const prune = async (): Promise<void> => {
    await run('nonces', () => signIn.prune());
    await run('tokens', () => sessions.prune());
    await run('passes', () => passes.prune());
  };
  const begin = async (alone: boolean): Promise<void> => {
    if (alone) {
      await run('take-over', async () => {
        await table.freeAll();
        await refunds.table.freeAll();
      });
    }
    await sweep();
  };
  return {
    /** Finishes payments and refunds that were left behind; `start` repeats it. Never rejects. */
    sweep,
    /** Raises the fees of transactions that wait too long; `start` repeats it. Never rejects. */
    replaceStuck,
    /**
     * Starts the background jobs. `alone`: no other process works on this database, so the leases of
     * ended processes are taken over at once.
     */
    start: ({ alone } = { alone: false }): void => {
      timers.push(
        clock.every(SWEEP_EVERY_MS, () => void sweep()),
        clock.every(SWEEP_EVERY_MS, () => void replaceStuck()),
        clock.every(CHECK_RAILS_EVERY_MS, () => void railMonitor.check()),
        clock.every(PRUNE_EVERY_MS, () => void prune()),
      );
      void railMonitor.check();
      void begin(alone);
    },
    /** Stops the background jobs and waits for payments that are under way. */
    stop: async (): Promise<void> => {
      for (const stop of timers.splice(0)) stop();
      await Promise.all(running.values());
      await topUps.idle();
    },
  };
}
