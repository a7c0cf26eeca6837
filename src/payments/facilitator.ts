/**
 * The embedded facilitator for others: `supported`, `verify`, `settle` of the x402 protocol, on the
 * same gas keys. Off by default, because whoever may call `settle` spends gas. Nothing here
 * credits anybody.
 */
import { x402Facilitator } from '@x402/core/facilitator';
import type {
  PaymentPayload,
  PaymentRequirements,
  SchemeNetworkFacilitator,
} from '@x402/core/types';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { chainReason } from './chain-reason.ts';
import { asObject } from './header-codec.ts';

export interface FacilitatorFace {
  supported(): unknown;
  /** Takes the body of `POST /verify`; malformed input is `isValid: false`. Throws 503 when the chain is away. */
  verify(body: unknown): Promise<unknown>;
  /** Takes the body of `POST /settle`; malformed input is `success: false`. Throws 503 when the chain is away. */
  settle(body: unknown): Promise<unknown>;
}

export interface ExposedScheme {
  readonly network: string;
  readonly scheme: SchemeNetworkFacilitator;
}

export function openFacilitator(schemes: readonly ExposedScheme[], log: Log): FacilitatorFace {
  const facilitator = new x402Facilitator();
  for (const { network, scheme } of schemes) {
    facilitator.register(network as `${string}:${string}`, scheme); // CAIP-2
  }
  return {
    supported: () => facilitator.getSupported(),
    verify: async (body) => {
      const request = readRequest(body);
      if (request === undefined) return { isValid: false, invalidReason: 'invalid_payload' };
      try {
        return await facilitator.verify(...request);
      } catch (error) {
        if (error instanceof Fault) throw error;
        // The scheme classes throw on shapes that they do not expect.
        log.info({ reason: chainReason(error) }, 'a verify request was malformed');
        return { isValid: false, invalidReason: 'invalid_payload' };
      }
    },
    settle: async (body) => {
      const request = readRequest(body);
      const refusal = {
        success: false,
        errorReason: 'invalid_payload',
        transaction: '',
        network: '',
      };
      if (request === undefined) return refusal;
      try {
        return await facilitator.settle(...request);
      } catch (error) {
        if (error instanceof Fault) throw error;
        // As above; the schemes answer their own failures with `success: false`.
        log.info({ reason: chainReason(error) }, 'a settle request was malformed');
        return { ...refusal, network: request[1].network };
      }
    },
  };
}

function readRequest(body: unknown): [PaymentPayload, PaymentRequirements] | undefined {
  const fields = asObject(body);
  const payload = asObject(fields?.['paymentPayload']);
  const requirements = asObject(fields?.['paymentRequirements']);
  const inner = asObject(payload?.['payload']);
  const accepted = asObject(payload?.['accepted']);
  if (payload === undefined || requirements === undefined) return undefined;
  if (inner === undefined || accepted === undefined || payload['x402Version'] !== 2)
    return undefined;
  if ('permit2Authorization' in inner) return undefined;
  // The schemes give some of these back as they came, so what is no text never reaches them.
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
