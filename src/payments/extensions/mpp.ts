/**
 * The Machine Payments Protocol: the HTTP authentication scheme `Payment` (draft-httpauth-payment-01) with
 * the method `evm` and the intent `charge` (draft-evm-charge-01). A credential is an EIP-3009
 * authorization, so it is converted to an x402 header for the first EVM rail.
 *
 * The server stores no challenges. The id of a challenge is a MAC of its parameters, so that the server
 * recognises its own challenges; the payer signs the hash of id and realm as the nonce.
 */
import * as z from 'zod';
import { type Clock, SECOND_MS, isoTime } from '../../core/clock.ts';
import { keccak256 } from '../../core/keccak.ts';
import type { Ids } from '../../core/ids.ts';
import type { Nano } from '../../core/money.ts';
import { asObject, decodeHeader, encodeBase64Url, encodeHeader } from '../header-codec.ts';
import { USDC_DECIMALS, largestOf, unitsAbove } from '../networks.ts';
import { invalidPayment, paymentError } from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { isSameMac, macOf } from '../secrets.ts';

/** The header of a credential; `Payment-Authorization` if another credential uses `Authorization`. */
export type CredentialField = 'Authorization' | 'Payment-Authorization';

export interface MachinePaymentsOptions {
  readonly secret: string;
  readonly realm: string;
  readonly maxTimeoutSeconds: number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly ids: Pick<Ids, 'hex'>;
  readonly offers: () => readonly RailOffer[];
}

const METHOD = 'evm';
const INTENT = 'charge';
const EVM = 'eip155:';
const NONCE_BYTES = 8;
const CREDENTIAL = /^Payment[ ]+([A-Za-z0-9_-]+={0,2})$/i;

export function isPaymentCredential(value: string): boolean {
  return /^Payment[ ]/i.test(value);
}

const Challenge = z.object({
  id: z.string(),
  realm: z.string(),
  method: z.string(),
  intent: z.string(),
  /** Base64url of JSON, like `opaque`. */
  request: z.string(),
  expires: z.string(),
  opaque: z.string(),
  header: z.string().optional(),
  /** Our challenges have no digest. */
  digest: z.undefined().optional(),
});
type Challenge = z.infer<typeof Challenge>;

export class MachinePayments {
  readonly #options: MachinePaymentsOptions;

  constructor(options: MachinePaymentsOptions) {
    this.#options = options;
  }

  /** The value of `WWW-Authenticate` for an amount; `undefined` if the rail of Base is not offered. */
  challenge(amount: Nano, field: CredentialField): string | undefined {
    const { realm, maxTimeoutSeconds, clock, ids, offers } = this.#options;
    const offer = offers().find(({ network }) => network.startsWith(EVM));
    if (offer === undefined) return undefined;
    const request = encodeBase64Url({
      // In alphabetical order, because the bytes are signed.
      amount: unitsAbove(largestOf(amount, offer)).toString(),
      currency: offer.asset,
      methodDetails: {
        chainId: Number(offer.network.slice(EVM.length)),
        credentialTypes: ['authorization'],
        decimals: USDC_DECIMALS,
      },
      recipient: offer.payTo,
    });
    const expires = isoTime(clock.nowMs() + maxTimeoutSeconds * SECOND_MS);
    // Makes the id unique, so that two challenges at the same time are two payments.
    const opaque = encodeBase64Url({ nonce: ids.hex(NONCE_BYTES) });
    const header = field === 'Authorization' ? {} : { header: field };
    const parameters = {
      realm,
      method: METHOD,
      intent: INTENT,
      expires,
      ...header,
      opaque,
      request,
    };
    const list = Object.entries({ id: this.#idOf(parameters), ...parameters });
    return `Payment ${list.map(([name, value]) => `${name}="${value}"`).join(', ')}`;
  }

  /** The payment of a credential as an x402 header. Throws a 400 Fault for a challenge that is not ours. */
  x402Header(credential: string, field: CredentialField): string {
    const value = readCredential(credential);
    const challenge = Challenge.safeParse(value['challenge']).data;
    const isOurs = challenge !== undefined && isSameMac(challenge.id, this.#idOf(challenge));
    if (!isOurs || challenge.realm !== this.#options.realm) {
      throw invalidPayment(
        'The challenge of the payment was not issued by this server; get a new one',
      );
    }
    if ((challenge.header ?? 'Authorization') !== field) {
      throw invalidPayment(
        `The payment must be in the header ${challenge.header ?? 'Authorization'}`,
      );
    }
    // The MAC proves that this server wrote it.
    const {
      amount,
      currency: asset,
      recipient: payTo,
      methodDetails,
    } = asObject(JSON.parse(Buffer.from(challenge.request, 'base64url').toString())) ?? {};
    const network = `${EVM}${String(asObject(methodDetails)?.['chainId'])}`;
    const { signature, ...authorization } = readAuthorization(value['payload'], challenge);
    if (authorization.value !== amount) {
      throw invalidPayment(
        `The amount of the payment must be ${String(amount)}, as in its challenge`,
      );
    }
    return encodeHeader({
      x402Version: 2,
      accepted: { scheme: 'exact', network, asset, payTo, amount },
      payload: { signature, authorization },
    });
  }

  #idOf(challenge: Omit<Challenge, 'id' | 'digest'>): string {
    const { realm, method, intent, request, expires, opaque, header } = challenge;
    const parameters = [realm, method, intent, request, expires, opaque, header];
    return macOf(this.#options.secret, JSON.stringify(parameters));
  }
}

export function paymentReceipt(settlement: string, nowMs: number): string | undefined {
  const reference = decodeHeader(settlement)?.['transaction'];
  if (typeof reference !== 'string') return undefined;
  return encodeBase64Url({
    method: METHOD,
    reference,
    status: 'success',
    timestamp: isoTime(nowMs),
  });
}

function readCredential(credential: string): Readonly<Record<string, unknown>> {
  const text = CREDENTIAL.exec(credential.trim())?.[1];
  const value = text === undefined ? undefined : decodeHeader(text);
  if (value !== undefined) return value;
  throw paymentError(
    'INVALID_PAYMENT_FORMAT',
    'The credential must be Payment and the base64url of a JSON object',
  );
}

/** The authorization in the layout of x402. Its other members are checked like those of any payment. */
function readAuthorization(payload: unknown, { id, realm, expires }: Challenge) {
  const fields = asObject(payload) ?? {};
  const { type, from, to, value, validAfter, validBefore, nonce, signature } = fields;
  if (type !== 'authorization') {
    throw invalidPayment('The type of the payment must be authorization (EIP-3009)');
  }
  const bound = `0x${keccak256(Buffer.from(id + realm)).toString('hex')}`;
  if (typeof nonce !== 'string' || nonce.toLowerCase() !== bound) {
    throw invalidPayment(
      'The nonce of the payment must be the hash of the id and the realm of its challenge',
    );
  }
  const lastSecond = Math.ceil(Date.parse(expires) / SECOND_MS);
  const isTime = typeof validBefore === 'string' || typeof validBefore === 'number';
  if (!isTime || !(Number(validBefore) <= lastSecond)) {
    throw invalidPayment(
      'The validBefore of the payment must not be after the end of its challenge',
    );
  }
  return { from, to, value, validAfter, validBefore, nonce, signature };
}
