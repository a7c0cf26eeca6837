/**
 * The embedded facilitator for other servers: `supported`, `verify` and `settle` of the x402 protocol with
 * the same gas keys. Off by default, because every `settle` spends gas. It credits no account.
 *
 * A response does not wait for a slow node: the work continues, and the same request joins it. A shop
 * sells something for each success, so only one request receives the result of a settlement.
 */
import { x402Facilitator } from '@x402/core/facilitator';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { sha256Hex } from '../../core/ids.ts';
import { chainReason } from '../chain-log.ts';
import { asObject } from '../header-codec.ts';
import type { PaymentServices } from '../payment-options.ts';
import { endsWithin, remember } from '../bounded.ts';

type Request = [PaymentPayload, PaymentRequirements];
type FacilitatorCall = keyof typeof MALFORMED;
type FacilitatorServices = Pick<PaymentServices, 'rails' | 'clock' | 'log' | 'settleWaitMs'>;

const RESPONSE_GRACE_MS = 5 * SECOND_MS;
const RETRY_AFTER_SECONDS = 5;
const MAX_RUNNING = 1_000;
const MAX_ENDED = 1_000;

interface Work {
  readonly result: Promise<unknown>;
  /** The disconnection of the request that waits; `undefined` if none does. */
  caller: AbortSignal | undefined;
}

const REASON = 'invalid_payload';
/** As the x402 scheme classes report it. */
const DUPLICATE = 'duplicate_settlement';
const MALFORMED = {
  verify: () => ({ isValid: false, invalidReason: REASON }),
  settle: (network: string) => ({ success: false, errorReason: REASON, transaction: '', network }),
} as const;

export class ExposedFacilitator {
  readonly #official = new x402Facilitator();
  readonly #services: FacilitatorServices;
  readonly #running = new Map<string, Work>();
  /** Settlements whose result no request has received. */
  readonly #ended = new Map<string, Work>();

  constructor(services: FacilitatorServices) {
    this.#services = services;
    for (const rail of services.rails.values()) {
      this.#official.register(rail.network as `${string}:${string}`, rail.exposedScheme()); // CAIP-2
    }
  }

  supported(): unknown {
    return this.#official.getSupported();
  }

  /**
   * The result of a call, also for malformed input and for a settlement that another request waits for.
   * `caller` aborts when the request is disconnected, by default never. Throws 503 if the chain does not respond.
   */
  async call(
    call: FacilitatorCall,
    body: unknown,
    caller = new AbortController().signal,
  ): Promise<unknown> {
    const { clock, log, settleWaitMs } = this.#services;
    const request = readRequest(body);
    if (request === undefined) return MALFORMED[call]('');
    const { network } = request[1];
    const key = sha256Hex(JSON.stringify([call, request]));
    const work = this.#running.get(key) ?? this.#ended.get(key) ?? this.#start(key, call, request);
    if (call === 'settle' && isAwaited(work))
      return { ...MALFORMED[call](network), errorReason: DUPLICATE };
    this.#ended.delete(key);
    work.caller = caller;
    if (!(await endsWithin(clock, settleWaitMs + RESPONSE_GRACE_MS, work.result))) {
      if (work.caller === caller) work.caller = undefined;
      throw unavailable('The chain takes too long to respond');
    }
    try {
      return await work.result;
    } catch (error) {
      if (error instanceof Fault) throw error;
      // The x402 scheme classes return a failed check; they throw only on input of another shape.
      log.info({ reason: chainReason(error) }, `A ${call} request was malformed`);
      return MALFORMED[call](network);
    }
  }

  #start(key: string, call: FacilitatorCall, request: Request): Work {
    if (this.#running.size >= MAX_RUNNING) throw unavailable('Too many requests are running');
    const ended = (): void => {
      this.#running.delete(key);
      if (call === 'settle' && !isAwaited(work)) remember(this.#ended, key, work, MAX_ENDED);
    };
    const result = this.#official[call](...request).finally(ended);
    const work: Work = { result, caller: undefined };
    this.#running.set(key, work);
    return work;
  }
}

function isAwaited({ caller }: Work): boolean {
  return caller?.aborted === false;
}

function unavailable(reason: string): Fault {
  return new Fault('SERVICE_UNAVAILABLE', {
    message: `${reason}; send the same request again`,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

function readRequest(body: unknown): Request | undefined {
  const fields = asObject(body);
  const payload = asObject(fields?.['paymentPayload']);
  const requirements = asObject(fields?.['paymentRequirements']);
  const inner = asObject(payload?.['payload']);
  const accepted = asObject(payload?.['accepted']);
  if (payload === undefined || requirements === undefined) return undefined;
  if (inner === undefined || accepted === undefined || payload['x402Version'] !== 2) {
    return undefined;
  }
  if ('permit2Authorization' in inner) return undefined;
  // The schemes return some of these members unchanged.
  const texts = ['scheme', 'network', 'asset', 'amount', 'payTo'];
  if (!texts.every((name) => typeof requirements[name] === 'string')) return undefined;
  if (!areTexts([accepted['scheme'], accepted['network']])) return undefined;
  const authorization = asObject(inner['authorization']);
  if (authorization !== undefined && !areTexts(Object.values(authorization))) return undefined;
  return [payload as never, requirements as never]; // the fields that the schemes read were checked
}

function areTexts(values: readonly unknown[]): boolean {
  return values.every((value) => typeof value === 'string');
}
