/**
 * A remote facilitator that settles in place of the embedded one. Its results are only logged: the chain
 * decides whether a payment has arrived.
 */
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { SECOND_MS } from '../../core/clock.ts';
import { boundedText } from '../bounded.ts';
import { asObject } from '../header-codec.ts';
import type { PaymentSettings } from '../settings.ts';

/** Responses have some hundred bytes, `supported` some kilobytes. */
const MAX_BYTES = 1_000_000;

export class ExternalFacilitator {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #timeoutMs: number;

  constructor(url: string, settings: Omit<PaymentSettings['facilitator'], 'url'>) {
    const { authorization, timeoutSeconds } = settings;
    this.#url = url.replace(/\/{1,9}$/, '');
    this.#headers = {
      'content-type': 'application/json',
      ...(authorization === undefined ? {} : { authorization }),
    };
    this.#timeoutMs = timeoutSeconds * SECOND_MS;
  }

  /** Rejects if the payment is rejected or times out; it may be sent all the same. */
  async settle(
    paymentPayload: PaymentPayload,
    paymentRequirements: PaymentRequirements,
  ): Promise<void> {
    const { x402Version } = paymentPayload;
    const body = JSON.stringify({ x402Version, paymentPayload, paymentRequirements });
    const answer = await this.#ask('settle', { method: 'POST', body });
    if (answer['success'] === true) return;
    throw new Error(`The facilitator refuses the payment: ${String(answer['errorReason'])}`);
  }

  /** The fee payer of the scheme `exact`; `undefined` if it reports none. */
  async feePayer(network: string): Promise<string | undefined> {
    const { kinds } = await this.#ask('supported', { method: 'GET' });
    const found = (Array.isArray(kinds) ? kinds : [])
      .map((kind: unknown) => asObject(kind))
      .find((kind) => kind?.['scheme'] === 'exact' && kind['network'] === network);
    const feePayer = asObject(found?.['extra'])?.['feePayer'];
    return typeof feePayer === 'string' ? feePayer : undefined;
  }

  /** Follows redirects, which known facilitators send; a signed payment can only pay us. */
  async #ask(
    path: 'settle' | 'supported',
    init: { readonly method: string; readonly body?: string },
  ): Promise<Readonly<Record<string, unknown>>> {
    const response = await fetch(`${this.#url}/${path}`, {
      ...init,
      headers: this.#headers,
      signal: AbortSignal.timeout(this.#timeoutMs),
    });
    const text = await boundedText(response, MAX_BYTES);
    if (!response.ok) throw new Error(`The facilitator answered with ${response.status}`);
    const answer = asObject(JSON.parse(text));
    if (answer === undefined) throw new Error('The facilitator gave no JSON object');
    return answer;
  }
}
