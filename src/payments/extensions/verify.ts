/**
 * Verifies the signed objects of a service: the offers of a 402, the receipt of a settlement and the
 * receipt of a request. Accepts only keys that the service publishes as `did:web`.
 */
import { parsedJson } from '../../json/json-text.ts';
import * as z from 'zod';
import { asObject } from '../header-codec.ts';
import { DIGEST_PARAMETER, OFFER_RECEIPT, extension, usageDigest } from './signing.ts';

type Json = Readonly<Record<string, unknown>>;

export interface VerifyOptions {
  /** Origin of the signer; default: the origin in the claims. */
  readonly issuer: string | undefined;
  readonly keysOf: (origin: string) => Promise<unknown>;
}

export interface VerifiedItem {
  readonly kind: 'offer' | 'receipt';
  readonly format: 'jws' | 'eip712';
  /** Id of the published key; `undefined` if no published key made the signature. */
  readonly signer: string | undefined;
  readonly claims: Json;
  /** One sentence; `undefined` for a valid item. */
  readonly problem: string | undefined;
}

export interface Verification {
  readonly ok: boolean;
  readonly issuer: string;
  readonly items: readonly VerifiedItem[];
  readonly usage: Json | undefined;
}

/** A JWS that contains its claims, or an EIP-712 signature with its claims. */
const Signed = z.union([
  z.object({ format: z.literal('jws'), signature: z.string() }),
  z.object({
    format: z.literal('eip712'),
    payload: z.record(z.string(), z.unknown()),
    signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/, 'An EIP-712 signature is 0x and 65 bytes'),
  }),
]);
type Signed = z.infer<typeof Signed>;

const KeyDocument = z.object({
  verificationMethod: z.array(
    z.object({
      id: z.string(),
      publicKeyJwk: z.looseObject({ kty: z.string() }).optional(),
      blockchainAccountId: z.string().optional(),
    }),
  ),
});
type KeyMethod = z.infer<typeof KeyDocument>['verificationMethod'][number];

const COMPACT_JWS = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const BASE64 = /^[\w+/-]+={0,2}$/;
/** Far above the number of options in a 402, which are signed twice. */
const MAX_SIGNED = 100;

/** Rejects with one sentence if the text contains no signed object, or if the keys cannot be fetched. */
export async function verifySigned(text: string, options: VerifyOptions): Promise<Verification> {
  const { signed, usage: given } = findSigned(text.trim());
  const claims = await Promise.all(signed.map(claimsOf));
  const [first] = claims;
  if (first === undefined) {
    throw new Error(
      'The input must be a signed receipt, a PAYMENT-RESPONSE or PAYMENT-REQUIRED header, or a JWS',
    );
  }
  const issuer = options.issuer ?? originOf(first);
  const methods = await publishedKeys(issuer, options);
  const usage = given ?? asObject(claims.find((one) => one['usage'] !== undefined)?.['usage']);
  const items: VerifiedItem[] = [];
  for (const [index, one] of signed.entries()) {
    items.push(await verifyOne(one, claims[index] ?? {}, { issuer, methods, usage }));
  }
  return { ok: items.every(({ problem }) => problem === undefined), issuer, items, usage };
}

/** The signed objects of a text; none if one of them is malformed. */
function findSigned(text: string): { signed: readonly Signed[]; usage?: Json | undefined } {
  if (COMPACT_JWS.test(text)) return { signed: [{ format: 'jws', signature: text }] };
  const value = asObject(parsed(text));
  if (value === undefined) return { signed: [] };
  const info = asObject(asObject(asObject(value['extensions'])?.[OFFER_RECEIPT])?.['info']);
  const listed = value['receipts'] ?? info?.['offers'];
  const objects: readonly unknown[] = Array.isArray(listed) ? listed : [info?.['receipt'] ?? value];
  if (objects.length > MAX_SIGNED) {
    throw new Error(`The input must have at most ${MAX_SIGNED} signatures`);
  }
  const signed = z.array(Signed).safeParse(objects).data ?? [];
  return { signed, usage: asObject(value['usage']) };
}

/** Parses JSON, or base64 of JSON as in headers. */
function parsed(text: string): unknown {
  const json = BASE64.test(text) ? Buffer.from(text, 'base64').toString('utf8') : text;
  return parsedJson(json);
}

async function claimsOf(signed: Signed): Promise<Json> {
  if (signed.format === 'eip712') return signed.payload;
  const { extractJWSPayload } = await extension();
  try {
    return asObject(extractJWSPayload(signed.signature)) ?? {};
  } catch {
    throw new Error('The claims of the JWS must be JSON');
  }
}

function originOf(claims: Json): string {
  const url = claims['resourceUrl'];
  const parsedUrl = typeof url === 'string' ? URL.parse(url) : null;
  if (parsedUrl !== null && /^https?:$/.test(parsedUrl.protocol)) return parsedUrl.origin;
  throw new Error('The resourceUrl of the claims must be an HTTP URL');
}

async function publishedKeys(
  issuer: string,
  { keysOf }: VerifyOptions,
): Promise<readonly KeyMethod[]> {
  const document = KeyDocument.safeParse(await keysOf(issuer));
  if (document.success) return document.data.verificationMethod;
  throw new Error(`The /.well-known/did.json of ${issuer} must be a DID document with keys`);
}

interface Expected {
  readonly issuer: string;
  readonly methods: readonly KeyMethod[];
  readonly usage: Json | undefined;
}

async function verifyOne(signed: Signed, claims: Json, expected: Expected): Promise<VerifiedItem> {
  const kind = claims['scheme'] === undefined ? 'receipt' : 'offer';
  const { signer, problem } =
    signed.format === 'jws'
      ? await jwsSigner(signed, expected)
      : await eip712Signer(signed, kind, expected);
  const wrong = problem ?? (await problemOfClaims(claims, expected));
  return { kind, format: signed.format, signer, claims, problem: wrong };
}

type Signer = Partial<Pick<VerifiedItem, 'signer' | 'problem'>>;

const BAD_SIGNATURE = 'The signature does not match its claims';

async function jwsSigner(
  signed: Signed & { readonly format: 'jws' },
  { methods, issuer }: Expected,
): Promise<Signer> {
  const { extractJWSHeader, verifyReceiptSignatureJWS } = await extension();
  let kid: string | undefined;
  try {
    ({ kid } = extractJWSHeader(signed.signature));
  } catch {
    return { problem: 'The header of the JWS must be JSON' };
  }
  const method = methods.find(({ id }) => fragmentOf(id) === fragmentOf(kid));
  if (kid === undefined || method?.publicKeyJwk === undefined) {
    return { problem: `The signature is of a key that ${issuer} does not publish` };
  }
  const isValid = await verifyReceiptSignatureJWS(signed, method.publicKeyJwk).then(
    () => true,
    () => false,
  );
  return isValid ? { signer: method.id } : { problem: BAD_SIGNATURE };
}

function fragmentOf(id: string | undefined): string | undefined {
  return id?.split('#').at(-1);
}

async function eip712Signer(
  signed: Signed & { readonly format: 'eip712' },
  kind: VerifiedItem['kind'],
  { methods, issuer }: Expected,
): Promise<Signer> {
  const { verifyOfferSignatureEIP712, verifyReceiptSignatureEIP712 } = await extension();
  const verify = kind === 'offer' ? verifyOfferSignatureEIP712 : verifyReceiptSignatureEIP712;
  let address: string;
  try {
    address = (await verify(signed as never)).signer.toLowerCase(); // throws on other payloads
  } catch {
    return { problem: BAD_SIGNATURE };
  }
  const method = methods.find(
    ({ blockchainAccountId }) => blockchainAccountId?.split(':').at(-1)?.toLowerCase() === address,
  );
  // With a changed claim the recovered signer is another one, so the two cases cannot be distinguished.
  return method === undefined
    ? { problem: `${BAD_SIGNATURE}, or ${issuer} does not publish its key` }
    : { signer: method.id };
}

async function problemOfClaims(
  claims: Json,
  { issuer, usage }: Expected,
): Promise<string | undefined> {
  const origin = originOf(claims);
  if (origin !== issuer) return `The service is ${origin}, not ${issuer}`;
  const digest = new URL(String(claims['resourceUrl'])).searchParams.get(DIGEST_PARAMETER);
  if (digest === null) {
    return usage === undefined ? undefined : 'The claims have no digest of the usage';
  }
  const inside = asObject(claims['usage']);
  for (const one of [usage, inside]) {
    if (one !== undefined && (await usageDigest(one)) !== digest) {
      return 'The usage differs from the signed one: its digest is different';
    }
  }
  return usage === undefined ? 'The usage of the receipt is missing' : undefined;
}
