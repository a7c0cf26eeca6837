/**
 * The `exact` scheme of the exposed facilitator: the official class, made anew for each call, so
 * that a chain that could not be asked is told apart from a bad payment. What was broadcast and not
 * seen in a block is remembered, so that a repeated settle waits for it instead of sending again.
 */
import type {
  PaymentPayload,
  PaymentRequirements,
  SchemeNetworkFacilitator,
  SettleResponse,
  VerifyResponse,
} from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { Fault } from '../../core/faults.ts';
import type { TrackedSigner } from './facilitator-signer.ts';

/** Transactions that are remembered; the oldest goes first. */
const MAX_PENDING = 1_000;
const RETRY_AFTER_SECONDS = 5;

export class ExposedEvmScheme implements SchemeNetworkFacilitator {
  readonly scheme = 'exact';
  readonly caipFamily = 'eip155:*';
  readonly #open: () => TrackedSigner;
  readonly #pending = new Map<string, string>();

  constructor(open: () => TrackedSigner) {
    this.#open = open;
  }

  getExtra(): undefined {
    return undefined;
  }

  getSigners(): string[] {
    return [...this.#open().signer.getAddresses()];
  }

  /** Throws 503 when the chain could not be asked. */
  async verify(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<VerifyResponse> {
    const tracked = this.#open();
    const result = await this.#schemeOf(tracked).verify(payload, requirements);
    if (!result.isValid && tracked.isTroubled()) throw chainAway();
    return result;
  }

  /** Throws 503 when nothing was sent because the chain could not be asked. */
  async settle(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<SettleResponse> {
    const tracked = this.#open();
    const result = await this.#schemeOf(tracked).settle(payload, requirements);
    if (!result.success && result.transaction === '' && tracked.isTroubled()) throw chainAway();
    return result;
  }

  #schemeOf(tracked: TrackedSigner): ExactEvmScheme {
    const pending = this.#pending;
    return new ExactEvmScheme(tracked.signer, {
      pendingSettlementStore: {
        get: async (key) => await Promise.resolve(pending.get(key)),
        set: async (key, transaction) => {
          pending.set(key, transaction);
          const oldest = pending.keys().next().value;
          if (pending.size > MAX_PENDING && oldest !== undefined) pending.delete(oldest);
          await Promise.resolve();
        },
        delete: async (key) => {
          pending.delete(key);
          await Promise.resolve();
        },
      },
    });
  }
}

function chainAway(): Fault {
  return new Fault('SERVICE_UNAVAILABLE', {
    message: 'The chain could not be asked about the payment; send the same request again',
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
