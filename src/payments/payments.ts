/**
 * Paying from a wallet (x402) and signing in with one: the public file of this folder.
 *
 * It owns the 402 objects, sign-in proofs and wallet tokens, top-ups, refunds and the rails. It
 * knows nothing of HTTP servers or of the ledger: the postings are functions that it is handed and
 * calls inside its own database transactions, so that a top-up is credited with the row that says so.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import { chainReason } from './chain-reason.ts';
import type { Store } from '../db/db.ts';
import { CreditWatch } from './credit-watch.ts';
import type { FacilitatorFace, openFacilitator as OpenFacilitator } from './facilitator.ts';
import { openRails } from './open-rails.ts';
import type { OpenedRails } from './open-rails.ts';
import { NO_PROOF, openPasses } from './passes.ts';
import type { RetryProof } from './passes.ts';
import type { Rail, RailHealth } from './rail.ts';
import { RailWatch } from './rail-watch.ts';
import { openReceiptSigner } from './receipts.ts';
import { Refunds } from './refunds.ts';
import type { RefundPosting, RefundState } from './refunds.ts';
import {
  discoveryAnswer,
  insufficientAnswer,
  signInChallenge,
  topUpAnswer,
  versionOneBody,
  wellKnownManifest,
} from './requirements.ts';
import type {
  PaymentRequiredAnswer,
  RequirementOptions,
  Resource,
  SignInChallenge,
} from './requirements.ts';
import { sharedSecret } from './secrets.ts';
import { readAmounts } from './settings.ts';
import type { Amounts, PaymentSettings } from './settings.ts';
import { KeyChallenges, refused } from './sign-in/key-challenges.ts';
import { WalletSessions } from './sign-in/sessions.ts';
import type {
  ListedToken,
  TokenBearer,
  TokenCaps,
  TokenLimits,
  WalletToken,
} from './sign-in/sessions.ts';
import { ShownPayments } from './shown-payments.ts';
import type { OfferedPayment } from './shown-payments.ts';
import { SignIn } from './sign-in/sign-in.ts';
import type { SignedInWallet } from './sign-in/sign-in.ts';
import type { DailyStake, StakingReader } from './staking.ts';
import { LEASE_MS, TopUpTable } from './top-up-table.ts';
import type { WatchCounts } from './top-up-table.ts';
import { TopUps } from './top-ups.ts';
import type { Credit, Reverse, Step, TopUpReceipt } from './top-up-records.ts';

export { askRails, askStaking } from './ask-rails.ts';
export { auditChains } from './chain-audit.ts';
export type { ChainAuditReport } from './chain-audit.ts';
export { balanceBody, balanceHeader, topUpBody } from './answers.ts';
export { walletIdentity } from '../core/addresses.ts';
export { PAYMENTS_MIGRATIONS } from './migrations.ts';
export type { FacilitatorFace } from './facilitator.ts';
export type { RetryProof } from './passes.ts';
export type { RailHealth } from './rail.ts';
export type { RefundEntry, RefundPosting, RefundState } from './refunds.ts';
export type { PaymentRequiredAnswer, Resource } from './requirements.ts';
export type { PaymentSettings } from './settings.ts';
export type { TokenCaps, TokenLimits, WalletToken } from './sign-in/sessions.ts';
export type { SignedInWallet } from './sign-in/sign-in.ts';
export type { WatchCounts } from './top-up-table.ts';
export type { Credit, CreditEntry, Reverse, TopUpReceipt } from './top-up-records.ts';

export interface PaymentsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly settings: PaymentSettings;
  /** The configured public origin, never taken from a request. */
  readonly publicUrl: string;
  /** Version path of the service; `/api/v1` by default. */
  readonly basePath?: string;
  readonly serviceName: string;
  /** Prefix of wallet tokens, for example `svc_wallet_`. */
  readonly tokenPrefix: string;
  readonly docsUrl: string;
  readonly keysUrl: string;
  /** Posts a top-up inside `tx` and gives the new balance; its key is unique. */
  readonly credit: Credit;
  /** Takes a credit back inside `tx` whose payment is gone from the chain. */
  readonly reverse: Reverse;
  readonly debitRefund: RefundPosting;
  readonly restoreRefund: RefundPosting;
  readonly tokenCaps: TokenCaps;
  /** How often the chain is asked about a transaction under way; 1 s by default. */
  readonly pollMs?: number;
  /** How long a dead process keeps its payments; 15 s by default. */
  readonly leaseMs?: number;
  /** Called at the points where a crash must lose nothing. */
  readonly onStep?: (step: Step) => void | Promise<void>;
}

const DEFAULT_POLL_MS = SECOND_MS;
const SWEEP_EVERY_MS = 10 * SECOND_MS;
const WATCH_EVERY_MS = 5 * MINUTE_MS;
const PRUNE_EVERY_MS = MINUTE_MS;
const NONCE_BYTES = 16;
const DEFAULT_BASE_PATH = '/api/v1';

/** Opens the rails of the configuration. A rail whose facilitator does not answer rejects. */
export async function openPayments(options: PaymentsOptions): Promise<Payments> {
  const amounts = readAmounts(options.settings);
  const pollMs = options.pollMs ?? DEFAULT_POLL_MS;
  const parts = await openRails({ ...options, amounts, pollMs });
  const newSecret = (): string => options.ids.bytes(32).toString('base64url');
  const [secret, keySecret, passes, receipts, staking, facilitator] = await Promise.all([
    sharedSecret(options.store, 'wallet-token', newSecret),
    sharedSecret(options.store, 'key-challenge', newSecret),
    openPasses(options.store, options.clock, newSecret),
    options.settings.receipts
      ? openReceiptSigner(
          options.store,
          options.clock,
          `${options.publicUrl}${options.basePath ?? DEFAULT_BASE_PATH}/x402/top-up`,
        )
      : undefined,
    openStaking(options),
    openExposed(options, parts.schemes),
  ]);
  const owner = options.ids.hex(8);
  const common = {
    rails: parts.rails,
    clock: options.clock,
    log: options.log,
    settleWaitMs: options.settings.settleWaitSeconds * SECOND_MS,
    pollMs,
  };
  const leaseMs = options.leaseMs ?? LEASE_MS;
  const table = new TopUpTable(options.store, options.clock, owner, leaseMs);
  const topUps = new TopUps({
    ...common,
    table,
    credit: options.credit,
    receipts,
    isExternal: options.settings.facilitator.url !== undefined,
    onStep: options.onStep,
  });
  return new Payments(options, amounts, {
    rails: parts.rails,
    evm: parts.evm,
    watch: new RailWatch(parts.rails, options.clock, options.log),
    signIn: new SignIn({
      store: options.store,
      clock: options.clock,
      log: options.log,
      publicUrl: options.publicUrl,
      chains: [...parts.rails.keys()],
      isContractSignature: parts.evm?.isContractSignature,
    }),
    sessions: new WalletSessions({
      secret,
      store: options.store,
      caps: options.tokenCaps,
      clock: options.clock,
      ids: options.ids,
      lifeMs: options.settings.sessionMinutes * MINUTE_MS,
      prefix: options.tokenPrefix,
    }),
    challenges: new KeyChallenges({ secret: keySecret, clock: options.clock, ids: options.ids }),
    topUps,
    shown: new ShownPayments({ ...common, topUps, table, passes }),
    creditWatch: new CreditWatch({
      ...common,
      table,
      reverse: options.reverse,
      onStep: options.onStep,
    }),
    refunds: new Refunds({
      ...common,
      store: options.store,
      ids: options.ids,
      owner,
      debit: options.debitRefund,
      restore: options.restoreRefund,
      leaseMs,
    }),
    staking,
    facilitator,
  });
}

/** The staking reader loads a chain library: only where a contract is configured. */
async function openStaking(options: PaymentsOptions): Promise<StakingReader | undefined> {
  const { settings, clock, log } = options;
  if (settings.staking === undefined) return undefined;
  const { openStakingReader } = await import('./staking.ts');
  return openStakingReader(settings.staking, clock, log);
}

async function openExposed(
  options: PaymentsOptions,
  schemes: Parameters<typeof OpenFacilitator>[0],
): Promise<FacilitatorFace | undefined> {
  if (!options.settings.facilitator.expose) return undefined;
  const { openFacilitator } = await import('./facilitator.ts');
  return openFacilitator(schemes, options.log);
}

/** What a wallet sends to get an API key. */
export interface KeyProof {
  readonly address: string;
  readonly token: string;
  /** Over the text of the token. */
  readonly signature: string;
}

interface PaymentParts {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly evm: OpenedRails['evm'];
  readonly watch: RailWatch;
  readonly signIn: SignIn;
  readonly sessions: WalletSessions;
  readonly challenges: KeyChallenges;
  readonly topUps: TopUps;
  readonly shown: ShownPayments;
  readonly creditWatch: CreditWatch;
  readonly refunds: Refunds;
  readonly staking: StakingReader | undefined;
  readonly facilitator: FacilitatorFace | undefined;
}

export class Payments {
  readonly #options: PaymentsOptions;
  readonly #parts: PaymentParts;
  readonly #requirements: RequirementOptions;
  #stops: (() => void)[] = [];
  readonly #background = new Set<Promise<void>>();
  /** `undefined` unless the configuration exposes it. */
  readonly facilitator: FacilitatorFace | undefined;
  /** The configured amounts in nano-USD. */
  readonly amounts: Amounts;

  constructor(options: PaymentsOptions, amounts: Amounts, parts: PaymentParts) {
    this.#options = options;
    this.#parts = parts;
    this.amounts = amounts;
    this.facilitator = parts.facilitator;
    this.#requirements = {
      publicUrl: options.publicUrl,
      basePath: options.basePath ?? DEFAULT_BASE_PATH,
      serviceName: options.serviceName,
      docsUrl: options.docsUrl,
      keysUrl: options.keysUrl,
      amounts,
      maxTimeoutSeconds: options.settings.maxTimeoutSeconds,
    };
  }

  /** Whether wallets can pay here at all. */
  get isConfigured(): boolean {
    return this.#parts.rails.size > 0;
  }

  /**
   * Starts the sweep of unfinished payments, the watch of the gas keys and the pruning of nonces.
   * `alone` says that no other process works on this database, so nobody's lease is waited for.
   */
  start(options: { readonly alone: boolean } = { alone: false }): void {
    if (!this.isConfigured) return;
    const { clock } = this.#options;
    this.#stops = [
      clock.every(SWEEP_EVERY_MS, () => void this.sweep()),
      clock.every(SWEEP_EVERY_MS, () => void this.replaceStuck()),
      clock.every(WATCH_EVERY_MS, () => void this.#parts.watch.check()),
      clock.every(PRUNE_EVERY_MS, () => void this.#prune()),
    ];
    void this.#parts.watch.check();
    void this.#begin(options.alone);
  }

  async #begin(isAlone: boolean): Promise<void> {
    if (isAlone) await this.#run('take-over', () => this.#parts.topUps.takeOver());
    await this.sweep();
  }

  /** Stops the periodic work and waits for payments that are under way. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.splice(0)) stop();
    await Promise.all(this.#background);
    await this.#parts.topUps.idle();
  }

  /** The 402 for a caller without credentials. Throws `X402_NOT_CONFIGURED` without rails. */
  discovery(resource: Resource): PaymentRequiredAnswer {
    const offers = this.#offers();
    return discoveryAnswer(this.#requirements, offers, resource, this.#challenge(resource));
  }

  /** The 402 of `POST /x402/top-up` without a payment header. */
  topUpRequired(resource: Resource): PaymentRequiredAnswer {
    const offers = this.#offers();
    return topUpAnswer(this.#requirements, offers, resource, this.#challenge(resource));
  }

  /** The 402 for a signed-in wallet with too little credit. */
  insufficientCredit(
    resource: Resource,
    credit: { readonly balance: Nano; readonly needed: Nano },
  ): PaymentRequiredAnswer {
    const offers = this.#offers();
    const challenge = this.#challenge(resource);
    return insufficientAnswer(this.#requirements, offers, resource, challenge, credit);
  }

  /** The body for `?x402Version=1`. */
  versionOne(resource: Resource): Readonly<Record<string, unknown>> {
    return versionOneBody(this.#requirements, this.#offers(), resource, this.amounts.minimumTopUp);
  }

  /** `/.well-known/x402.json`. */
  manifest(resources: readonly Resource[]): Readonly<Record<string, unknown>> {
    return wellKnownManifest(this.#requirements, this.#offers(), resources);
  }

  /** Verifies and uses up a `SIGN-IN-WITH-X` header. Throws a 401 Fault. */
  async signIn(header: string): Promise<SignedInWallet> {
    this.#requireRails();
    return await this.#parts.signIn.verify(header);
  }

  /** A bearer token for a wallet that has just signed in. */
  async mintToken(wallet: string, limits: TokenLimits): Promise<WalletToken> {
    return await this.#parts.sessions.mint(wallet, limits);
  }

  /** The tokens of a wallet that can still be used, newest first. */
  async tokens(wallet: string): Promise<readonly ListedToken[]> {
    return await this.#parts.sessions.list(wallet);
  }

  /** Ends a token of the wallet; `false` when it has no such token. */
  async revokeToken(wallet: string, id: string): Promise<boolean> {
    return await this.#parts.sessions.revoke(wallet, id);
  }

  /** A text of 15 minutes for a wallet that wants an API key to sign. */
  mintKeyChallenge(): string {
    this.#requireRails();
    return this.#parts.challenges.mint();
  }

  /** The wallet that signed a key challenge, once. Throws a 401 Fault. */
  async signerOfKeyChallenge(proof: KeyProof): Promise<string> {
    this.#requireRails();
    const { signIn, challenges } = this.#parts;
    const { id, expiresMs } = challenges.read(proof.token);
    const wallet = await signIn.signerOf(proof.address, proof.token, proof.signature);
    if (await signIn.useOnce(wallet, `key.${id}`, expiresMs)) return wallet;
    throw refused('The token has made a key before; get a new one');
  }

  /** Whether a bearer token is one of ours by its prefix. */
  isWalletToken(token: string): boolean {
    return token.startsWith(this.#parts.sessions.prefix);
  }

  /** The wallet of a bearer token, and its cap. Throws a 401 Fault. */
  async verifyToken(token: string): Promise<TokenBearer> {
    return await this.#parts.sessions.verify(token);
  }

  /**
   * Takes a payment header in any of the three layouts and credits it once. Throws a Fault:
   * 400 bad payment, 402 `SETTLEMENT_FAILED`, 202 `SETTLEMENT_PENDING`, 409, 503. The receipt of a
   * header that is only shown again has no balance.
   */
  async topUp(header: string, proof = NO_PROOF): Promise<TopUpReceipt> {
    this.#requireRails();
    return await this.#parts.shown.topUp(header, proof);
  }

  /**
   * A payment on an endpoint that sells something, checked, and taken later, when the request is
   * known to be good. It serves the request that opens it and a retry of that request, once.
   * Throws what `topUp` throws, and 409 for a payment that somebody else may have opened.
   */
  async offer(header: string, proof: RetryProof): Promise<OfferedPayment> {
    this.#requireRails();
    return await this.#parts.shown.offer(header, proof);
  }

  /** Pays unused credit back to a wallet. Throws a Fault when nothing was debited. */
  async refund(wallet: string, amountNano: Nano): Promise<RefundState> {
    return await this.#parts.refunds.refund(wallet, amountNano);
  }

  /** Throws a Fault for an unknown refund. */
  async refundState(refundId: string): Promise<RefundState> {
    return await this.#parts.refunds.state(refundId);
  }

  /** Today's credit that a wallet's stake gives; `undefined` without a configured contract or a stake that can be read. */
  async stakedCredit(wallet: string): Promise<DailyStake | undefined> {
    return await this.#parts.staking?.(wallet);
  }

  /** Credits that the chain could still undo, and what it has undone. */
  async watchCounts(): Promise<WatchCounts> {
    return await this.#parts.creditWatch.counts();
  }

  /** The last known state of each rail. */
  health(): readonly RailHealth[] {
    return this.#parts.watch.health();
  }

  /** Asks the rails now; `start` does it every five minutes. */
  async checkRails(): Promise<readonly RailHealth[]> {
    await this.#parts.watch.check();
    return this.#parts.watch.health();
  }

  /** Finishes payments and refunds that were left behind; `start` does it every ten seconds. Never throws. */
  async sweep(): Promise<void> {
    const { topUps, creditWatch, refunds } = this.#parts;
    await this.#run('sweep', async () => {
      await topUps.sweep();
      await refunds.sweep();
    });
    await this.#run('watch', async () => {
      await creditWatch.sweep();
      await refunds.watch();
    });
  }

  /** Raises the fees of transactions that wait for long; `start` does it every ten seconds. Never throws. */
  async replaceStuck(): Promise<void> {
    await this.#run('fees', async () => await this.#parts.evm?.replaceStuck());
  }

  async #prune(): Promise<void> {
    await this.#run('nonces', () => this.#parts.signIn.prune());
    await this.#run('tokens', () => this.#parts.sessions.prune());
    await this.#run('passes', () => this.#parts.shown.prune());
  }

  async #run(name: string, work: () => Promise<void>): Promise<void> {
    const done = work().catch((error: unknown) => {
      // Periodic work is repeated; a database that is away is logged and asked again.
      this.#options.log.error({ reason: chainReason(error) }, `the ${name} of payments failed`);
    });
    this.#background.add(done);
    await done;
    this.#background.delete(done);
  }

  #offers(): ReturnType<RailWatch['offers']> {
    this.#requireRails();
    return this.#parts.watch.offers();
  }

  #challenge(resource: Resource): SignInChallenge {
    return signInChallenge(this.#requirements, this.#parts.watch.offers(), resource, {
      nowMs: this.#options.clock.nowMs(),
      nonce: this.#options.ids.hex(NONCE_BYTES),
    });
  }

  #requireRails(): void {
    if (!this.isConfigured) {
      throw new Fault('X402_NOT_CONFIGURED', {
        body: {
          error: 'X402_NOT_CONFIGURED',
          message: 'Wallet payments are not configured on this server, use an API key',
        },
      });
    }
  }
}
