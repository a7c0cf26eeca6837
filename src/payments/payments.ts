/**
 * Paying from a wallet (x402) and signing in with one: the public file of this folder.
 *
 * It owns the 402 objects, sign-in proofs and wallet tokens, top-ups, refunds and the rails. It
 * knows nothing of HTTP servers or of the ledger: the postings are functions that it is handed and
 * calls inside its own database transactions, so that a top-up is credited with the row that says so.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { chainReason } from './chain-reason.ts';
import type { Contradictions } from './contradictions.ts';
import { CreditMonitor } from './credit-monitor.ts';
import type { ExposedFacilitator } from './facilitator.ts';
import { USDC_DECIMALS, wrongDecimals } from './networks.ts';
import { MachinePayments } from './mpp.ts';
import { openRails } from './open-rails.ts';
import { type RetryProof, NO_PROOF, PaymentPasses } from './payment-passes.ts';
import { RailMonitor } from './rail-monitor.ts';
import type { Rail, RailHealth, RecentBlock } from './rail.ts';
import { Refunds } from './refunds.ts';
import { Requirements } from './requirements.ts';
import { sharedSecret } from './secrets.ts';
import type { PaymentsOptions } from './payment-options.ts';
import { type Amounts, type PaymentSettings, readAmounts } from './settings.ts';
export { type Verification, type VerifiedItem, verifySigned } from './signing/verify.ts';
import { type Signing, openSigning } from './signing/signing.ts';
import { type OfferedPayment, PaymentHeaders } from './payment-headers.ts';
import { KeyChallenges } from './sign-in/key-challenges.ts';
import { WalletTokens } from './sign-in/wallet-tokens.ts';
import { type SignedInWallet, SignIn } from './sign-in/sign-in.ts';
import type { StakingReader } from './staking.ts';
import type { TopUpReceipt } from './top-up-records.ts';
import { type CreditCounts, LEASE_MS, TopUpTable } from './top-up-table.ts';
import { TopUps } from './top-ups.ts';

export { askRails, askStaking } from './open-rails.ts';
export { explorerUrl } from './networks.ts';
export { type TopUpDetail, isStuck, listTopUps, topUpById } from './top-up-list.ts';
export { auditChains } from './chain-audit.ts';
export type { ChainAuditReport } from './chain-audit.ts';
export { PAYMENTS_MIGRATIONS } from './migrations.ts';
export type { ExposedFacilitator } from './facilitator.ts';
export type { RetryProof } from './payment-passes.ts';
export { remember } from './remember.ts';
export {
  type PublishedKey,
  PUBLISHED_BEFORE_MS,
  type Signing,
  listSigningKeys,
  rotateSigningKey,
} from './signing/signing.ts';
export type { RailHealth, RecentBlock } from './rail.ts';
export { type OpenCredit, type RefundState, sumOf } from './refunds.ts';
export { authOptions, MANIFEST_PATH } from './requirements.ts';
export type {
  Discovered,
  OfferKind,
  PaymentRequiredResponse,
  Resource,
  WalletCredit,
} from './requirements.ts';
export type { PaymentSettings } from './settings.ts';
export type { TokenLimits } from './sign-in/wallet-tokens.ts';
export { type CredentialField, isPaymentCredential, paymentReceipt } from './mpp.ts';
export type { LedgerPostings, PaymentsOptions } from './payment-options.ts';
export type { CreditEntry, TopUpReceipt } from './top-up-records.ts';

const SWEEP_EVERY_MS = 10 * SECOND_MS;
const ASK_RAILS_EVERY_MS = 5 * MINUTE_MS;
const PRUNE_EVERY_MS = MINUTE_MS;

/**
 * Opens the rails of the configuration. Rejects without one, when a token has other decimals than
 * amounts are counted in, and when a facilitator that has to does not answer.
 */
export async function openPayments(options: PaymentsOptions): Promise<Payments> {
  return new Payments(await openAll(options));
}

/** Throws 503 where the operator takes no payments. */
export function requirePayments(payments: Payments | undefined): Payments {
  if (payments !== undefined) return payments;
  throw new Fault('X402_NOT_CONFIGURED');
}

async function openAll(options: PaymentsOptions) {
  const { store, clock, ids, log, settings, publicUrl } = options;
  const { basePath = '/api/v1', pollMs = SECOND_MS, leaseMs = LEASE_MS } = options;
  const { rails, evm, contradictions } = await openRails({ store, clock, log, settings, pollMs });
  if (rails.size === 0) throw new Fault('X402_NOT_CONFIGURED');
  for (const rail of rails.values()) await checkDecimals(rail);
  const secretFor = (use: string): Promise<string> =>
    sharedSecret(store, use, () => ids.bytes(32).toString('base64url'));
  const owner = ids.hex(8);
  const amounts = readAmounts(settings);
  const railMonitor = new RailMonitor(rails, log);
  const settleWaitMs = settings.settleWaitSeconds * SECOND_MS;
  const table = new TopUpTable(store, clock, owner, leaseMs);
  const signing = settings.receipts ? await signingOf({ ...options, basePath }) : undefined;
  const services = {
    ...options,
    signing,
    rails,
    table,
    owner,
    amounts,
    settleWaitMs,
    pollMs,
    leaseMs,
  };
  const topUps = new TopUps(services);
  const creditMonitor = new CreditMonitor(services);
  const signIn = new SignIn({
    store,
    clock,
    log,
    publicUrl,
    chains: [...rails.keys()],
    isContractSignature: evm?.isContractSignature,
  });
  const passes = new PaymentPasses(store, clock, await secretFor('payment-claim'));
  return {
    clock,
    log,
    amounts,
    rails,
    evm,
    table,
    signing,
    topUps,
    passes,
    railMonitor,
    headers: new PaymentHeaders(services, topUps, passes),
    creditMonitor,
    contradictions,
    requirements: new Requirements({
      ...options,
      basePath,
      amounts,
      maxTimeoutSeconds: settings.maxTimeoutSeconds,
      signing,
      refundNetworks: [...rails.values()]
        .filter(({ refunds }) => refunds !== undefined)
        .map(({ network }) => network),
      headerBytes: settings.requiredHeaderBytes,
      offers: () => railMonitor.offers(),
    }),
    mpp: settings.mpp
      ? machinePayments(options, railMonitor, await secretFor('mpp-challenge'))
      : undefined,
    signIn,
    sessions: sessionsOf(options, await secretFor('wallet-token')),
    keyChallenges: new KeyChallenges(await secretFor('key-challenge'), signIn, clock, ids),
    refunds: new Refunds(services, creditMonitor),
    staking: await stakingOf(options, contradictions),
    facilitator: settings.facilitator.expose
      ? // Loads large libraries.
        new (await import('./facilitator.ts')).ExposedFacilitator(services)
      : undefined,
  };
}

/** Loads large libraries: only where a contract is configured. */
async function stakingOf(
  { settings: { staking }, clock, log }: PaymentsOptions,
  contradictions: Contradictions,
): Promise<StakingReader | undefined> {
  if (staking === undefined) return undefined;
  const { openStakingReader } = await import('./staking.ts');
  return openStakingReader(staking, clock, log, contradictions);
}

function sessionsOf(options: PaymentsOptions, secret: string): WalletTokens {
  const { store, clock, ids, settings, tokenCaps: caps, tokenPrefix: prefix } = options;
  const lifeMs = settings.sessionMinutes * MINUTE_MS;
  return new WalletTokens({ store, clock, ids, secret, caps, lifeMs, prefix });
}

function machinePayments(
  { settings, publicUrl, clock, ids }: PaymentsOptions,
  rails: RailMonitor,
  secret: string,
): MachinePayments {
  const { maxTimeoutSeconds } = settings;
  const realm = new URL(publicUrl).host;
  return new MachinePayments({
    secret,
    realm,
    maxTimeoutSeconds,
    clock,
    ids,
    offers: () => rails.offers(),
  });
}

async function checkDecimals(rail: Rail): Promise<void> {
  // One that cannot be asked now is asked again before it takes a payment.
  const decimals = await rail.decimals().catch(() => USDC_DECIMALS);
  if (decimals !== USDC_DECIMALS) throw new Error(wrongDecimals(rail.offer.asset, decimals));
}

/** What signs offers and receipts, with rails or without. */
export async function signingOf(
  options: Pick<PaymentsOptions, 'store' | 'clock' | 'publicUrl'> & {
    readonly settings: Pick<PaymentSettings, 'signingKey'>;
    readonly basePath: string;
  },
): Promise<Signing> {
  return await openSigning({ ...options, configured: options.settings.signingKey });
}

type OpenedPayments = Awaited<ReturnType<typeof openAll>>;

export class Payments {
  readonly #opened: OpenedPayments;
  /** In nano-USD. */
  readonly amounts: Amounts;
  readonly requirements: Requirements;
  /** `undefined` where the settings ask for no signatures. */
  readonly signing: Signing | undefined;
  readonly sessions: WalletTokens;
  readonly refunds: Refunds;
  readonly keyChallenges: KeyChallenges;
  /** The same payments in other words; `undefined` unless the configuration offers them. */
  readonly mpp: MachinePayments | undefined;
  /** `undefined` unless the configuration exposes it. */
  readonly facilitator: ExposedFacilitator | undefined;
  #stops: (() => void)[] = [];
  readonly #background = new Set<Promise<void>>();

  constructor(opened: OpenedPayments) {
    this.#opened = opened;
    this.amounts = opened.amounts;
    this.requirements = opened.requirements;
    this.signing = opened.signing;
    this.sessions = opened.sessions;
    this.refunds = opened.refunds;
    this.keyChallenges = opened.keyChallenges;
    this.facilitator = opened.facilitator;
    this.mpp = opened.mpp;
  }

  /**
   * Starts the sweep of unfinished payments, the questions to the rails and the pruning of nonces.
   * `alone` says that no other process works on this database, so nobody's lease is waited for.
   */
  start(options: { readonly alone: boolean } = { alone: false }): void {
    const { clock, railMonitor } = this.#opened;
    this.#stops = [
      clock.every(SWEEP_EVERY_MS, () => void this.sweep()),
      clock.every(SWEEP_EVERY_MS, () => void this.replaceStuck()),
      clock.every(ASK_RAILS_EVERY_MS, () => void railMonitor.check()),
      clock.every(PRUNE_EVERY_MS, () => void this.#prune()),
    ];
    void railMonitor.check();
    void this.#begin(options.alone);
  }

  async #begin(isAlone: boolean): Promise<void> {
    if (isAlone) await this.#run('take-over', () => this.#opened.table.takeOver());
    await this.sweep();
  }

  /** Stops the periodic work and waits for payments that are under way. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0)) stop();
    await Promise.all(this.#background);
    await this.#opened.topUps.idle();
  }

  /** The wallet of a `SIGN-IN-WITH-X` header, which is used up. Throws a 401 Fault. */
  async signIn(header: string, asker: string): Promise<SignedInWallet> {
    return await this.#opened.signIn.verify(header, asker);
  }

  /**
   * Takes a payment header in any of the three layouts and credits it once. Throws a Fault:
   * 400 bad payment, 402 `SETTLEMENT_FAILED`, 202 `SETTLEMENT_PENDING`, 409, 503. The receipt of a
   * header that is only shown again has no balance.
   */
  async topUp(header: string, proof = NO_PROOF): Promise<TopUpReceipt> {
    return await this.#opened.headers.topUp(header, proof);
  }

  /**
   * A payment on an endpoint that sells something, checked, and taken later, when the request is
   * known to be good. It serves the request that opens it and a retry of that request, once.
   * Throws what `topUp` throws, and 409 for a payment that somebody else may have opened.
   */
  async offer(header: string, proof: RetryProof): Promise<OfferedPayment> {
    return await this.#opened.headers.offer(header, proof);
  }

  /** Today's credit that a wallet's stake gives; `undefined` without a configured contract or a stake that can be read. */
  readonly stakedCredit: StakingReader = async (wallet) => await this.#opened.staking?.(wallet);

  /** The block that a payment on Solana names; `undefined` without that rail. Rejects without a node. */
  async recentBlock(): Promise<RecentBlock | undefined> {
    const rail = [...this.#opened.rails.values()].find((one) => one.recentBlock !== undefined);
    return await rail?.recentBlock?.();
  }

  /** Credits that the chain could still undo, and what it has undone. */
  async creditCounts(): Promise<CreditCounts> {
    return await this.#opened.table.counts();
  }

  /** How often nodes of a network have contradicted each other since this process started. */
  get contradictions(): ReadonlyMap<string, number> {
    return this.#opened.contradictions.counts;
  }

  /**
   * Credits a failed payment that the chain shows as paid; the operator asks for it after an audit.
   * Throws the Fault that a caller would receive when it is not deep enough or not there.
   */
  async recover(paymentKey: string): Promise<TopUpReceipt> {
    return await this.#opened.topUps.recover(paymentKey);
  }

  /** Asks the rails now; `start` does it every five minutes. */
  async checkRails(): Promise<readonly RailHealth[]> {
    return await this.#opened.railMonitor.check();
  }

  /** Finishes payments and refunds that were left behind; `start` does it every ten seconds. Never throws. */
  async sweep(): Promise<void> {
    const { topUps, creditMonitor, refunds } = this.#opened;
    await this.#run('sweep', async () => {
      await topUps.sweep();
      await refunds.sweep();
    });
    await this.#run('watch', async () => {
      await creditMonitor.sweep();
      await refunds.monitor();
    });
  }

  /** Raises the fees of transactions that wait for long; `start` does it every ten seconds. Never throws. */
  async replaceStuck(): Promise<void> {
    await this.#run('fees', async () => await this.#opened.evm?.replaceStuck());
  }

  async #prune(): Promise<void> {
    const { signIn, sessions, passes } = this.#opened;
    await this.#run('nonces', () => signIn.prune());
    await this.#run('tokens', () => sessions.prune());
    await this.#run('passes', () => passes.prune());
  }

  async #run(name: string, work: () => Promise<void>): Promise<void> {
    const done = work().catch((error: unknown) => {
      // Periodic work is repeated; a database that is away is logged and asked again.
      this.#opened.log.error({ reason: chainReason(error) }, `The ${name} of payments failed`);
    });
    this.#background.add(done);
    await done;
    this.#background.delete(done);
  }
}
