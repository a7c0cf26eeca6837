/**
 * Verifies a wallet sign-in and returns the identity of the wallet.
 *
 * Invariant: a proof is accepted at most once, only for the configured domain and chains, and only for a
 * short time.
 */
import { walletIdentity, walletKind } from '../../core/addresses.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import { Batcher, type Store } from '../../db/db.ts';
import { chainReason } from '../chain-log.ts';
import { endsWithin } from '../bounded.ts';
import { type Proof, chainOfMessage, readProof, signInError } from './proof.ts';
import {
  type ContractSignatureCheck,
  type SignedText,
  isSignedByContract,
  isSignedByKey,
} from './signatures.ts';

export interface SignInOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  /** The configured public origin; wallets sign its host and port as the domain. */
  readonly publicUrl: string;
  readonly chains: readonly string[];
  /** If `undefined`, contract wallets cannot sign in. */
  readonly isContractSignature: ContractSignatureCheck | undefined;
}

export interface SignedInWallet {
  /** Lower-case EVM address, or base58 Solana address. */
  readonly wallet: string;
  readonly chain: string;
}

/** Time after `issuedAt` in which a sign-in is accepted. */
const MAX_AGE_MS = 5 * MINUTE_MS;
/** Accepted difference of the caller's clock, and of `timestamp` from `issuedAt`. */
const CLOCK_SKEW_MS = 30 * SECOND_MS;
/** EIP-4361 requires at least 8 characters; the maximum keeps the nonce table small. */
const NONCE = /^[A-Za-z0-9._~-]{8,128}$/;
/** ISO 8601 with a date and a time, as EIP-4361 requires; `Date.parse` alone would accept "5". */
const ISO_TIME = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;
const CONTRACT_CHECK_MS = 5 * SECOND_MS;
const MAX_BATCH = 128;

interface NonceUse {
  /** Wallet and nonce. All processes insert in this order, so that transactions cannot deadlock. */
  readonly key: string;
  readonly wallet: string;
  readonly nonce: string;
  readonly expiresMs: number;
}

export class SignIn {
  readonly #options: SignInOptions;
  readonly #domain: string;
  readonly #uses: Batcher<NonceUse, boolean>;

  constructor(options: SignInOptions) {
    this.#options = options;
    this.#domain = new URL(options.publicUrl).host;
    const limits = { maxInFlight: 2, maxItems: MAX_BATCH };
    this.#uses = new Batcher((uses) => this.#useNonces(uses), limits);
  }

  /**
   * Verifies a proof and spends its nonce. Throws a Fault with an `X402_SIGN_IN_*` code, or 503 if the
   * chain of a contract wallet does not respond.
   */
  async verify(header: string, clientAddress: string): Promise<SignedInWallet> {
    const proof = readProof(header);
    const wallet = this.#checkRules(proof);
    const { text, signature } = proof;
    await this.#checkSigned({ wallet, text, signature, clientAddress });
    // After the signature, so that a caller cannot spend the nonces of another wallet.
    const expiresMs = readTime(proof.message.issuedAt) + MAX_AGE_MS + CLOCK_SKEW_MS;
    const isFirstUse = await this.useOnce(wallet, proof.message.nonce, expiresMs);
    if (!isFirstUse) throw signInError('NONCE_REUSED');
    return { wallet, chain: proof.chain };
  }

  /** The identity of the wallet that signed a text. Throws a Fault with an `X402_SIGN_IN_*` code. */
  async signerOf(address: string, signed: Omit<SignedText, 'wallet'>): Promise<string> {
    if (walletKind(address) === undefined) throw signInError('INVALID_WALLET');
    const wallet = walletIdentity(address);
    await this.#checkSigned({ ...signed, wallet });
    return wallet;
  }

  /** Returns `false` if the wallet has used the nonce before; it is stored until `expiresMs`. */
  async useOnce(wallet: string, nonce: string, expiresMs: number): Promise<boolean> {
    const key = `${wallet} ${nonce}`;
    return await this.#uses.add({ key, wallet, nonce, expiresMs: Math.ceil(expiresMs) });
  }

  /**
   * Needs no flush of its own: the flush of a later charge in the same request includes this transaction.
   */
  async #useNonces(uses: readonly NonceUse[]): Promise<readonly boolean[]> {
    const areFirst: boolean[] = [];
    const ordered = [...uses.entries()].sort(([, a], [, b]) => (a.key < b.key ? -1 : 1));
    await this.#options.store.transaction(
      async (tx) => {
        for (const [index, { wallet, nonce, expiresMs }] of ordered) {
          const rows = await tx.query(
            `INSERT INTO payments_nonce (wallet, nonce, expires_ms) VALUES ($1, $2, $3)
             ON CONFLICT (wallet, nonce) DO NOTHING RETURNING nonce`,
            [wallet, nonce, expiresMs],
          );
          areFirst[index] = rows.length === 1;
        }
      },
      { durable: false },
    );
    return areFirst;
  }

  async prune(): Promise<void> {
    const { store, clock } = this.#options;
    // By the clock of the database: a process whose clock is ahead would let others accept a nonce again.
    const sql = 'DELETE FROM payments_nonce WHERE expires_ms < now_ms($1)';
    await store.query(sql, [clock.nowMs()]);
  }

  /** Checks everything except the signature and returns the wallet. The order of the checks is documented. */
  #checkRules({ message, address, chain, timestampMs }: Proof): string {
    const kind = walletKind(message.address);
    if (walletKind(address) === undefined || kind !== message.family) {
      throw signInError('INVALID_WALLET');
    }
    const wallet = walletIdentity(address);
    if (wallet !== walletIdentity(message.address)) throw signInError('ADDRESS_MISMATCH');
    const signedChain = chainOfMessage(message);
    if (message.family === 'evm' && !/^[1-9]\d{0,15}$/.test(message.chainReference)) {
      throw signInError('INVALID_CHAIN_ID');
    }
    if (chain !== signedChain) throw signInError('CHAIN_MISMATCH');
    const { chains } = this.#options;
    if (!chains.includes(signedChain)) {
      throw signInError('UNSUPPORTED_CHAIN', `The chain must be one of ${chains.join(', ')}`);
    }
    if (message.version !== '1') {
      throw signInError('INVALID_MESSAGE', 'The version of the sign-in message must be 1');
    }
    if (!NONCE.test(message.nonce)) {
      throw signInError('INVALID_MESSAGE', 'The nonce must have 8 to 128 letters or digits');
    }
    if (message.domain !== this.#domain) {
      throw signInError('DOMAIN_MISMATCH', `The sign-in must be for the domain ${this.#domain}`);
    }
    this.#checkTimes(message, timestampMs);
    return wallet;
  }

  #checkTimes(message: Proof['message'], timestampMs: number | undefined): void {
    const nowMs = this.#options.clock.nowMs();
    const issuedMs = readTime(message.issuedAt);
    if (timestampMs !== undefined && Math.abs(timestampMs - issuedMs) > CLOCK_SKEW_MS) {
      throw signInError('TIMESTAMP_MISMATCH');
    }
    if (issuedMs > nowMs + CLOCK_SKEW_MS) throw signInError('FUTURE_TIMESTAMP');
    if (nowMs - issuedMs > MAX_AGE_MS) throw signInError('EXPIRED');
    const { expirationTime, notBefore } = message;
    if (expirationTime !== undefined && readTime(expirationTime) <= nowMs) {
      throw signInError('EXPIRED');
    }
    if (notBefore !== undefined && readTime(notBefore) > nowMs) throw signInError('NOT_BEFORE');
  }

  async #checkSigned(signed: SignedText): Promise<void> {
    const { wallet, text, signature } = signed;
    if (await isSignedByKey(wallet, text, signature)) return;
    if (await this.#isSignedByContract(signed)) return;
    throw signInError('INVALID_SIGNATURE');
  }

  async #isSignedByContract(signed: SignedText): Promise<boolean> {
    const { isContractSignature: check, clock, log } = this.#options;
    if (check === undefined || !signed.wallet.startsWith('0x')) return false;
    try {
      const work = isSignedByContract(signed, check);
      if (await endsWithin(clock, CONTRACT_CHECK_MS, work)) return await work;
      throw new Error('The node takes too long');
    } catch (error) {
      if (error instanceof Fault) throw error;
      // The signature is neither valid nor invalid.
      const reason = chainReason(error);
      log.warn({ reason }, 'The signature of a contract wallet could not be verified');
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'The chain did not respond about the contract wallet; try again in a few seconds',
        retryAfterSeconds: 5,
        cause: reason,
      });
    }
  }
}

function readTime(text: string): number {
  const ms = ISO_TIME.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(ms)) {
    throw signInError('INVALID_MESSAGE', 'The times of the sign-in must be ISO 8601');
  }
  return ms;
}
