/**
 * Signing in with a wallet: a header in, the identity of the wallet out, once.
 *
 * Invariant: a proof is accepted at most once, only for the configured domain and chains, and only
 * while it is fresh. Everything that a caller can send ends in an accepted wallet or in a Fault.
 */
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import { walletIdentity, walletKind } from '../../core/addresses.ts';
import { chainReason } from '../chain-reason.ts';
import { endsWithin } from '../waiting.ts';
import type { Store } from '../../db/db.ts';
import { SignInNonces } from './nonces.ts';
import { readProof, refuseSignIn } from './proof.ts';
import { checkRules, nonceExpiryMs } from './rules.ts';
import { type ContractSignatureCheck, isSignedByContract, isSignedByKey } from './signatures.ts';

export interface SignInOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  /** The configured public origin; its host and port are the domain that wallets sign. */
  readonly publicUrl: string;
  /** CAIP-2 chains on which sign-in is allowed. */
  readonly chains: readonly string[];
  /** Without it contract wallets cannot sign in. */
  readonly isContractSignature: ContractSignatureCheck | undefined;
}

export interface SignedInWallet {
  /** Lower-case EVM address, or base58 Solana address. */
  readonly wallet: string;
  /** CAIP-2. */
  readonly chain: string;
}

/** What a sign-in may wait for a contract wallet's chain; its nodes answer in a fraction of it. */
const CONTRACT_CHECK_MS = 5 * SECOND_MS;
/** Contract checks cost a chain call each; more at once are refused, not queued. */
const MAX_CONTRACT_CHECKS = 32;

export class SignIn {
  readonly #options: SignInOptions;
  readonly #domain: string;
  readonly #chains: ReadonlySet<string>;
  readonly #nonces: SignInNonces;
  #contractChecks = 0;

  constructor(options: SignInOptions) {
    this.#options = options;
    this.#domain = new URL(options.publicUrl).host;
    this.#chains = new Set(options.chains);
    this.#nonces = new SignInNonces(options.store, options.clock);
  }

  /** Verifies and uses up a proof. Throws a Fault with an `X402_SIGN_IN_*` code, or 503 when a contract wallet cannot be asked. */
  async verify(header: string): Promise<SignedInWallet> {
    const proof = readProof(header);
    const wallet = checkRules(proof, {
      domain: this.#domain,
      chains: this.#chains,
      nowMs: this.#options.clock.nowMs(),
    });
    await this.#checkSigned(wallet, proof.text, proof.signature);
    // The nonce is used up only by a valid signature: nobody can burn another wallet's nonces.
    if (!(await this.useOnce(wallet, proof.message.nonce, nonceExpiryMs(proof)))) {
      throw refuseSignIn('NONCE_REUSED');
    }
    return { wallet, chain: proof.chain };
  }

  /** The identity of the wallet that signed a text of ours. Throws a Fault with an `X402_SIGN_IN_*` code. */
  async signerOf(address: string, text: string, signature: string): Promise<string> {
    if (walletKind(address) === undefined) throw refuseSignIn('INVALID_WALLET');
    const wallet = walletIdentity(address);
    await this.#checkSigned(wallet, text, signature);
    return wallet;
  }

  /** `false` when the wallet has used the word before; it is remembered until `expiresMs`. */
  async useOnce(wallet: string, word: string, expiresMs: number): Promise<boolean> {
    return await this.#nonces.consume(wallet, word, expiresMs);
  }

  /** Deletes nonces that cannot be presented again. */
  async prune(): Promise<void> {
    await this.#nonces.prune();
  }

  async #checkSigned(wallet: string, text: string, signature: string): Promise<void> {
    if (await isSignedByKey(wallet, text, signature)) return;
    if (await this.#isSignedByContract(wallet, text, signature)) return;
    throw refuseSignIn('INVALID_SIGNATURE');
  }

  async #isSignedByContract(wallet: string, text: string, signature: string): Promise<boolean> {
    const { isContractSignature: check, clock, log } = this.#options;
    if (check === undefined || !wallet.startsWith('0x')) return false;
    if (this.#contractChecks >= MAX_CONTRACT_CHECKS) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'Too many contract wallets are signing in, try again shortly',
        retryAfterSeconds: 1,
      });
    }
    this.#contractChecks += 1;
    try {
      const work = isSignedByContract(wallet, text, signature, check);
      if (await endsWithin(clock, CONTRACT_CHECK_MS, work)) return await work;
      throw new Error('The node takes too long');
    } catch (error) {
      // The chain could not be asked: the proof is neither good nor bad.
      const reason = chainReason(error);
      log.warn({ reason }, 'A contract wallet could not be asked');
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'The chain could not be asked about the contract wallet, try again shortly',
        retryAfterSeconds: 5,
        cause: reason,
      });
    } finally {
      this.#contractChecks -= 1;
    }
  }
}
