/**
 * Verifies the signed objects of a service: the offers of a 402, the receipt of a settlement and the
 * receipt of a request, in any of the texts that carry them. Only keys that the service publishes as
 * `did:web` count.
 */
import { parsedJson } from '../../json/json-text.ts';
import { z } from 'zod';
import { asObject } from '../header-codec.ts';
import { DIGEST_PARAMETER, OFFER_RECEIPT, extension, usageDigest } from './signing.ts';

type Json = Readonly<Record<string, unknown>>;

export interface VerifyOptions {
  /** The origin that must have signed it; by default the one that the claims name. */
  readonly issuer: string | undefined;
  /** Fetches the `did.json` of an origin. */
  readonly keysOf: (origin: string) => Promise<unknown>;
}

export interface VerifiedItem {
  readonly kind: 'offer' | 'receipt';
  readonly format: 'jws' | 'eip712';
  /** Id of the published key; `undefined` if none of them made the signature. */
  readonly signer: string | undefined;
  readonly claims: Json;
  /** One sentence; `undefined` for a good item. */
  readonly problem: string | undefined;
}

export interface Verification {
  readonly ok: boolean;
  readonly issuer: string;
  readonly items: readonly VerifiedItem[];
  readonly usage: Json | undefined;
}

/** A JWS with its claims inside, or claims beside an EIP-712 signature. */
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

interface Found {
  readonly signed: readonly Signed[];
  readonly usage: Json | undefined;
}

const COMPACT_JWS = /^[\w-]+\.[\w-]+\.[\w-]+$/;
const BASE64 = /^[\w+/-]+={0,2}$/;
/** A 402 offers a few options; each is signed twice. */
const MAX_SIGNED = 100;

/** Rejects with one sentence if the text has nothing signed, or if the keys cannot be fetched. */
export async function verifySigned(text: string, options: VerifyOptions): Promise<Verification> {
  const { signed, usage: told } = await findSigned(text.trim());
  const claims = await Promise.all(signed.map(claimsOf));
  const [first] = claims;
  if (first === undefined) {
    throw new Error(
      'Nothing signed was found: give a signed receipt, a PAYMENT-RESPONSE or PAYMENT-REQUIRED header, or a JWS',
    );
  }
  const issuer = options.issuer ?? originOf(first);
  const methods = await publishedKeys(issuer, options);
  const usage = told ?? asObject(claims.find((one) => one['usage'] !== undefined)?.['usage']);
  const items: VerifiedItem[] = [];
  for (const [index, one] of signed.entries()) {
    items.push(await verifyOne(one, claims[index] ?? {}, { issuer, methods, usage }));
  }
  return { ok: items.every(({ problem }) => problem === undefined), issuer, items, usage };
}

async function findSigned(text: string): Promise<Found> {
  if (COMPACT_JWS.test(text)) return found([{ format: 'jws', signature: text }], undefined);
  const value = asObject(parsed(text));
  if (value === undefined) return { signed: [], usage: undefined };
  const info = asObject(asObject(asObject(value['extensions'])?.[OFFER_RECEIPT])?.['info']);
  const listed = value['receipts'] ?? info?.['offers'];
  const single = info?.['receipt'] ?? value;
  return found(Array.isArray(listed) ? listed : [single], asObject(value['usage']));
}

function found(values: readonly unknown[], usage: Json | undefined): Found {
  const signed = values.slice(0, MAX_SIGNED + 1).flatMap((value) => {
    const one = Signed.safeParse(value);
    return one.success ? [one.data] : [];
  });
  if (signed.length > MAX_SIGNED) throw new Error(`More than ${MAX_SIGNED} signatures at once`);
  return { signed: signed.length === values.length ? signed : [], usage };
}

/** JSON, or base64 of it, as headers have it. */
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
    // Its parts are no JSON.
    throw new Error('The JWS cannot be read: its claims are not JSON');
  }
}

function originOf(claims: Json): string {
  const url = claims['resourceUrl'];
  const parsedUrl = typeof url === 'string' ? URL.parse(url) : null;
  if (parsedUrl !== null && /^https?:$/.test(parsedUrl.protocol)) return parsedUrl.origin;
  throw new Error('The claims name no service: resourceUrl must be an address');
}

async function publishedKeys(
  issuer: string,
  { keysOf }: VerifyOptions,
): Promise<readonly KeyMethod[]> {
  const document = KeyDocument.safeParse(await keysOf(issuer));
  if (document.success) return document.data.verificationMethod;
  throw new Error(`${issuer} publishes no keys: its /.well-known/did.json is no DID document`);
}

interface Against {
  readonly issuer: string;
  readonly methods: readonly KeyMethod[];
  readonly usage: Json | undefined;
}

async function verifyOne(signed: Signed, claims: Json, against: Against): Promise<VerifiedItem> {
  const kind = claims['scheme'] === undefined ? 'receipt' : 'offer';
  const { signer, problem } =
    signed.format === 'jws'
      ? await jwsSigner(signed, against)
      : await eip712Signer(signed, kind, against);
  const wrong = problem ?? (await problemOfClaims(claims, against));
  return { kind, format: signed.format, signer, claims, problem: wrong };
}

type Signer = Partial<Pick<VerifiedItem, 'signer' | 'problem'>>;

const BAD_SIGNATURE = 'The signature does not fit its claims';

async function jwsSigner(
  signed: Signed & { readonly format: 'jws' },
  { methods, issuer }: Against,
): Promise<Signer> {
  const { extractJWSHeader, verifyReceiptSignatureJWS } = await extension();
  let kid: string | undefined;
  try {
    ({ kid } = extractJWSHeader(signed.signature));
  } catch {
    return { problem: 'The JWS has no header that can be read' };
  }
  const method = methods.find(({ id }) => fragmentOf(id) === fragmentOf(kid));
  if (kid === undefined || method?.publicKeyJwk === undefined) {
    return { problem: `It is signed with a key that ${issuer} does not publish` };
  }
  const isGood = await verifyReceiptSignatureJWS(signed, method.publicKeyJwk).then(
    () => true,
    () => false,
  );
  return isGood ? { signer: method.id } : { problem: BAD_SIGNATURE };
}

function fragmentOf(id: string | undefined): string | undefined {
  return id?.split('#').at(-1);
}

async function eip712Signer(
  signed: Signed & { readonly format: 'eip712' },
  kind: VerifiedItem['kind'],
  { methods, issuer }: Against,
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
  // A changed claim gives another signer, so the two cases look alike.
  return method === undefined
    ? { problem: `${BAD_SIGNATURE}, or its key is none that ${issuer} publishes` }
    : { signer: method.id };
}

async function problemOfClaims(
  claims: Json,
  { issuer, usage }: Against,
): Promise<string | undefined> {
  const origin = originOf(claims);
  if (origin !== issuer) return `It is of ${origin}, not of ${issuer}`;
  const digest = new URL(String(claims['resourceUrl'])).searchParams.get(DIGEST_PARAMETER);
  if (digest === null) {
    return usage === undefined ? undefined : 'It does not say which usage it is for';
  }
  const inside = asObject(claims['usage']);
  for (const one of [usage, inside]) {
    if (one !== undefined && (await usageDigest(one)) !== digest) {
      return 'The usage is not the one that was signed: its digest is another';
    }
  }
  return usage === undefined ? 'The usage that it is for is missing' : undefined;
}
