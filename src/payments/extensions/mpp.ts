/**
 * The Machine Payments Protocol as another way to write a payment: the HTTP authentication scheme
 * `Payment` (draft-httpauth-payment-01) with the method `evm` and the intent `charge`
 * (draft-evm-charge-01). A charge that is authorized by EIP-3009 is what the rail of Base settles, so a
 * credential becomes the same payment in the words of x402, and from there on there is one machine.
 *
 * Nothing is stored for a challenge: its id is a MAC of what it says, and the payment is bound to it,
 * because the nonce that the payer signs is the hash of id and realm.
 */
import { z } from 'zod';
import { type Clock, SECOND_MS, isoTime } from '../../core/clock.ts';
import { keccak256 } from '../../core/keccak.ts';
import type { Ids } from '../../core/ids.ts';
import type { Nano } from '../../core/money.ts';
import { asObject, decodeHeader, encodeBase64Url, encodeHeader } from '../header-codec.ts';
import { USDC_DECIMALS, unitsAbove } from '../networks.ts';
import { paymentError } from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { isSameMac, macOf } from '../secrets.ts';

/** Where a credential is sent: beside another credential it has a field of its own. */
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
/** As long as any payment header may be. */
const MAX_CREDENTIAL_CHARS = 12_288;

export function isPaymentCredential(value: string): boolean {
  return /^Payment[ ]/i.test(value);
}

const Challenge = z.object({
  id: z.string(),
  realm: z.string(),
  method: z.string(),
  intent: z.string(),
  /** Base64url of JSON, as is `opaque`, which the client returns unchanged. */
  request: z.string(),
  expires: z.string(),
  opaque: z.string(),
  header: z.string().optional(),
  /** Our challenges have none. */
  digest: z.undefined().optional(),
});
type Challenge = z.infer<typeof Challenge>;

export class MachinePayments {
  readonly #options: MachinePaymentsOptions;

  constructor(options: MachinePaymentsOptions) {
    this.#options = options;
  }

  /** The value of `WWW-Authenticate` that asks for an amount; `undefined` while Base takes nothing. */
  challenge(amount: Nano, field: CredentialField): string | undefined {
    const { realm, maxTimeoutSeconds, clock, ids, offers } = this.#options;
    const offer = offers().find(({ network }) => network.startsWith(EVM));
    if (offer === undefined) return undefined;
    const request = encodeBase64Url({
      // In the order of their names: the bytes are signed.
      amount: unitsAbove(amount).toString(),
      currency: offer.asset,
      methodDetails: {
        chainId: Number(offer.network.slice(EVM.length)),
        credentialTypes: ['authorization'],
        decimals: USDC_DECIMALS,
      },
      recipient: offer.payTo,
    });
    const expires = isoTime(clock.nowMs() + maxTimeoutSeconds * SECOND_MS);
    // The id is what the payer signs: two challenges of one moment are two payments.
    const opaque = encodeBase64Url({ nonce: ids.hex(NONCE_BYTES) });
    const header = field === 'Authorization' ? undefined : field;
    const asked = { realm, method: METHOD, intent: INTENT, request, expires, opaque, header };
    const id = this.#idOf(asked);
    const words = {
      id,
      realm,
      method: METHOD,
      intent: INTENT,
      expires,
      ...(header && { header }),
      opaque,
      request,
    };
    const list = Object.entries(words).map(([name, value]) => `${name}="${value}"`);
    return `Payment ${list.join(', ')}`;
  }

  /** The payment of a credential as an x402 header. Throws a 400 Fault for one that we did not ask for. */
  x402Header(credential: string, field: CredentialField): string {
    const value = readCredential(credential);
    const challenge = Challenge.safeParse(value['challenge']).data;
    const isOurs = challenge !== undefined && isSameMac(challenge.id, this.#idOf(challenge));
    if (!isOurs || challenge.realm !== this.#options.realm) {
      throw refuse('The challenge of the payment is not one of this server: ask for a new one');
    }
    if ((challenge.header ?? 'Authorization') !== field) {
      throw refuse(`The payment must come in the header ${challenge.header ?? 'Authorization'}`);
    }
    // What is under our MAC was written by us.
    const request = asObject(JSON.parse(decoded(challenge.request)));
    const { amount, currency: asset, recipient: payTo, methodDetails } = request ?? {};
    const network = `${EVM}${String(asObject(methodDetails)?.['chainId'])}`;
    const authorization = readAuthorization(value['payload'], challenge);
    const { signature, ...signed } = authorization;
    if (signed.value !== amount) {
      throw refuse('The payment has another amount than the challenge that it answers');
    }
    return encodeHeader({
      x402Version: 2,
      accepted: { scheme: 'exact', network, asset, payTo, amount },
      payload: { signature, authorization: signed },
    });
  }

  #idOf({
    realm,
    method,
    intent,
    request,
    expires,
    opaque,
    header,
  }: Omit<Challenge, 'id' | 'digest'>) {
    const said = [realm, method, intent, request, expires, opaque, header];
    return macOf(this.#options.secret, JSON.stringify(said));
  }
}

/** The value of `Payment-Receipt` for a settlement that `PAYMENT-RESPONSE` tells. */
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
  const value =
    text === undefined || text.length > MAX_CREDENTIAL_CHARS ? undefined : decodeHeader(text);
  if (value !== undefined) return value;
  throw paymentError(
    'INVALID_PAYMENT_FORMAT',
    'The credential must be Payment and the base64url of a JSON object',
  );
}

/** The authorization, as x402 has it. Its other members are checked as those of any payment. */
function readAuthorization(value: unknown, { id, realm, expires }: Challenge) {
  const {
    type,
    from,
    to,
    value: amount,
    validAfter,
    validBefore,
    nonce,
    signature,
  } = asObject(value) ?? {};
  if (type !== 'authorization') {
    throw refuse('The type of the payment must be authorization: EIP-3009');
  }
  const bound = `0x${Buffer.from(keccak256(Buffer.from(id + realm))).toString('hex')}`;
  if (typeof nonce !== 'string' || nonce.toLowerCase() !== bound) {
    throw refuse(
      'The nonce of the payment must be the hash of the id and the realm of its challenge',
    );
  }
  const lastSecond = Math.ceil(Date.parse(expires) / SECOND_MS);
  const isTime = typeof validBefore === 'string' || typeof validBefore === 'number';
  if (!isTime || !(Number(validBefore) <= lastSecond)) {
    throw refuse('The payment must end with the challenge that it answers');
  }
  return { from, to, value: amount, validAfter, validBefore, nonce, signature };
}

function refuse(message: string) {
  return paymentError('INVALID_PAYMENT', message);
}

function decoded(text: string): string {
  return Buffer.from(text, 'base64url').toString();
}
