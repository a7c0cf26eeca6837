/**
 * A remote facilitator that settles instead of the embedded one. Its results are only logged: the chain
 * decides whether a payment has arrived.
 */
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import { boundedText } from '../bounded.ts';
import { asObject } from '../header-codec.ts';
import type { PaymentSettings } from '../settings.ts';
import { type CdpKey, cdpAuthorization } from './cdp-token.ts';

const MAX_BYTES = 1_000_000;

export class ExternalFacilitator {
  readonly #url: string;
  readonly #authorization: string | undefined;
  readonly #cdp: CdpKey | undefined;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  #count = 0;

  constructor(url: string, settings: Omit<PaymentSettings['facilitator'], 'url'>, clock: Clock) {
    this.#clock = clock;
    const { authorization, cdp, timeoutSeconds } = settings;
    this.#url = url.replace(/\/{1,9}$/, '');
    this.#authorization = authorization;
    this.#cdp = cdp;
    this.#timeoutMs = timeoutSeconds * SECOND_MS;
  }

  /** Rejects if the facilitator rejects the payment or does not respond; it may be sent nevertheless. */
  async settle(
    paymentPayload: PaymentPayload,
    paymentRequirements: PaymentRequirements,
  ): Promise<void> {
    const { x402Version } = paymentPayload;
    const body = JSON.stringify({ x402Version, paymentPayload, paymentRequirements });
    const { success, errorReason } = await this.#call('settle', { method: 'POST', body });
    if (success === true) return;
    throw new Error(`The facilitator rejects the payment: ${String(errorReason)}`);
  }

  async feePayer(network: string): Promise<string | undefined> {
    const { kinds } = await this.#call('supported', { method: 'GET' });
    const found = (Array.isArray(kinds) ? kinds : [])
      .map((kind: unknown) => asObject(kind))
      .find((kind) => kind?.['scheme'] === 'exact' && kind['network'] === network);
    const feePayer = asObject(found?.['extra'])?.['feePayer'];
    return typeof feePayer === 'string' ? feePayer : undefined;
  }

  /** Follows redirects, which known facilitators send: a signed payment can pay our receiver only. */
  async #call(
    path: 'settle' | 'supported',
    init: { readonly method: string; readonly body?: string },
  ): Promise<Readonly<Record<string, unknown>>> {
    const url = `${this.#url}/${path}`;
    this.#count += 1;
    const authorization =
      this.#cdp === undefined
        ? this.#authorization
        : await cdpAuthorization(this.#cdp, init.method, url, this.#clock.nowMs(), this.#count);
    const response = await fetch(url, {
      ...init,
      headers: {
        'content-type': 'application/json',
        ...(authorization === undefined ? {} : { authorization }),
      },
      signal: AbortSignal.timeout(this.#timeoutMs),
    });
    const text = await boundedText(response, MAX_BYTES);
    if (!response.ok) throw new Error(`The facilitator responded with status ${response.status}`);
    const result = asObject(JSON.parse(text));
    if (result === undefined) throw new Error('The facilitator did not return a JSON object');
    return result;
  }
}
