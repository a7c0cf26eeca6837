/**
 * Signed objects of the offer-receipt extension of x402: the offers of a 402, the receipt of a settled
 * payment and the receipt of a request; and the documents that publish the keys.
 *
 * Signatures take more time than most requests, so signed offers are cached, and the receipt of a request
 * is signed only on demand.
 */
import { sign } from 'node:crypto';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import type { Store } from '../../db/db.ts';
import { remember } from '../bounded.ts';
import { jwkOf, kidOf, type PublishedKey, SigningKeys } from './signing-keys.ts';

type Json = Readonly<Record<string, unknown>>;

/** A JWS that contains its payload, or an EIP-712 signature with its payload. */
export type SignedPayload =
  | { readonly format: 'jws'; readonly signature: string }
  | { readonly format: 'eip712'; readonly payload: Json; readonly signature: string };
export type SignedOffer = SignedPayload & { readonly acceptIndex: number };

export interface OfferedOption {
  readonly scheme: string;
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  readonly amount: string;
  readonly maxTimeoutSeconds: number;
}

export interface SettledPayment {
  readonly network: string;
  readonly payer: string;
  readonly transaction: string;
  /** Path of the paid resource; default: the top-up. */
  readonly path?: string | undefined;
}

export interface UsedRequest<Usage extends Json> {
  readonly requestId: string;
  /** The wallet, or `account:<id>`. */
  readonly payer: string;
  /** CAIP-2 of the wallet's chain, or `ledger:prepaid`. */
  readonly network: string;
  readonly usage: Usage;
}

export interface SignedUsage<Usage extends Json> {
  readonly object: 'signed_receipt';
  readonly usage: Usage;
  readonly receipts: SignedPayload[];
  readonly keys: string;
}

export interface SigningOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly publicUrl: string;
  readonly basePath: string;
  readonly configured: string | undefined;
}

export const OFFER_RECEIPT = 'offer-receipt';
const VERSION = 1;
/** Signed offers are reused for this time, and at most for half of their validity, so that they can be paid. */
const SAME_OFFERS_MS = MINUTE_MS;
const MAX_OFFERS = 200;
export const DID_DOCUMENT = '/.well-known/did.json';
/** Query parameter with the digest of the usage, in the URL of a receipt. */
export const DIGEST_PARAMETER = 'sha256';

export class Signing {
  readonly #options: SigningOptions;
  readonly keys: SigningKeys;
  readonly #offers = new Map<
    string,
    { readonly untilMs: number; readonly offers: SignedOffer[] }
  >();

  constructor(options: SigningOptions, keys: SigningKeys) {
    this.#options = options;
    this.keys = keys;
  }

  /** Signs every option in both forms, valid for at least half of its timeout. */
  async offers(resourceUrl: string, accepts: readonly OfferedOption[]): Promise<SignedOffer[]> {
    const nowMs = this.#options.clock.nowMs();
    const name = JSON.stringify([resourceUrl, accepts, this.keys.current.identifier]);
    const kept = this.#offers.get(name);
    if (kept !== undefined && kept.untilMs > nowMs) return kept.offers;
    const offers: SignedOffer[] = [];
    for (const [acceptIndex, option] of accepts.entries()) {
      const { scheme, network, asset, payTo, amount, maxTimeoutSeconds } = option;
      const validUntil = this.#nowSeconds() + maxTimeoutSeconds;
      const terms = { resourceUrl, scheme, network, asset, payTo, amount, validUntil };
      const payload = { version: VERSION, ...terms };
      offers.push({ ...(await this.#jws(payload)), acceptIndex });
      offers.push({ ...(await this.#eip712('offer', payload)), acceptIndex });
    }
    const halves = accepts.map((one) => (one.maxTimeoutSeconds * SECOND_MS) / 2);
    const untilMs = nowMs + Math.min(SAME_OFFERS_MS, ...halves);
    remember(this.#offers, name, { untilMs, offers }, MAX_OFFERS);
    return offers;
  }

  async settled(payment: SettledPayment): Promise<SignedPayload> {
    const { publicUrl, basePath } = this.#options;
    const { network, payer, transaction, path = `${basePath}/x402/top-up` } = payment;
    const resourceUrl = publicUrl + path;
    const issuedAt = this.#nowSeconds();
    return this.#jws({ version: VERSION, network, resourceUrl, payer, issuedAt, transaction });
  }

  /** The receipt of a request. Its URL contains the digest of the usage, because EIP-712 has no field for it. */
  async used<Usage extends Json>({
    requestId,
    payer,
    network,
    usage,
  }: UsedRequest<Usage>): Promise<SignedUsage<Usage>> {
    const { publicUrl, basePath } = this.#options;
    const digest = await usageDigest(usage);
    const resourceUrl = `${publicUrl}${basePath}/usage/${encodeURIComponent(requestId)}?${DIGEST_PARAMETER}=${digest}`;
    const issuedAt = this.#nowSeconds();
    const receipt = { version: VERSION, network, resourceUrl, payer, issuedAt };
    return {
      object: 'signed_receipt',
      usage,
      receipts: [
        await this.#jws({ ...receipt, usage }),
        await this.#eip712('receipt', { ...receipt, transaction: '' }),
      ],
      keys: publicUrl + DID_DOCUMENT,
    };
  }

  /** `/.well-known/did.json`: every key as a verification method of `did:web:<host>`. */
  didDocument(): Json {
    const did = `did:web:${new URL(this.#options.publicUrl).host.replace(':', '%3A')}`;
    const keys = this.keys.published();
    const methodsOf = ({ identifier, address }: PublishedKey): Json[] => [
      {
        id: `${did}#${identifier}`,
        type: 'JsonWebKey2020',
        controller: did,
        publicKeyJwk: jwkOf(identifier),
      },
      {
        id: `${did}#${address}`,
        type: 'EcdsaSecp256k1RecoveryMethod2020',
        controller: did,
        blockchainAccountId: `eip155:1:${address}`,
      },
    ];
    return {
      '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/suites/jws-2020/v1'],
      id: did,
      verificationMethod: keys.flatMap(methodsOf),
      assertionMethod: keys
        .filter(({ isCurrent }) => isCurrent)
        .flatMap(methodsOf)
        .map(({ id }) => id),
    };
  }

  jwks(): Json {
    return {
      keys: this.keys.published().map(({ identifier }) => ({
        ...jwkOf(identifier),
        kid: kidOf(identifier),
        use: 'sig',
        alg: 'EdDSA',
      })),
    };
  }

  async #jws(payload: Json) {
    const { createJWS } = await extension();
    const { identifier, ed25519 } = this.keys.current;
    const signature = await createJWS(payload, {
      kid: kidOf(identifier),
      format: 'jws',
      algorithm: 'EdDSA',
      sign: async (bytes) => sign(null, bytes, ed25519).toString('base64url'),
    });
    return { format: 'jws' as const, signature };
  }

  async #eip712(kind: 'offer' | 'receipt', payload: Json) {
    const { hashOfferTypedData, hashReceiptTypedData } = await extension();
    // The callers pass the fields of the type.
    const hash =
      kind === 'offer'
        ? hashOfferTypedData(payload as never)
        : hashReceiptTypedData(payload as never);
    const signature = this.keys.current.evm.sign(Buffer.from(hash.slice(2), 'hex'));
    return { format: 'eip712' as const, payload, signature };
  }

  #nowSeconds(): number {
    return Math.floor(this.#options.clock.nowMs() / SECOND_MS);
  }
}

export async function openSigning(options: SigningOptions): Promise<Signing> {
  const keys = new SigningKeys(options);
  await keys.open();
  return new Signing(options, keys);
}

/** Hex of the SHA-256 over the canonical JSON of a usage. */
export async function usageDigest(usage: Json): Promise<string> {
  const { hashCanonical } = await extension();
  return Buffer.from(await hashCanonical(usage)).toString('hex');
}

/** Loaded for the first signature, because the libraries are large. */
export async function extension() {
  return await import('@x402/extensions/offer-receipt');
}
