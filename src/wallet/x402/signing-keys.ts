/** `/.well-known/did.json` and `/.well-known/jwks.json`: the keys that sign offers and receipts. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import type { Route } from '../../http/route.ts';
import type { Signing } from '../../payments/payments.ts';

const KEYS_AGE_SECONDS = 60;
const IDENTIFIER = 'z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK';
const ADDRESS = '0x52908400098527886E0F7030069857D2E4169EE7';
const DID = 'did:web:api.example.com';
const JWK = {
  kty: 'OKP',
  crv: 'Ed25519',
  x: 'Lm_M42cB3HkUiODQsXRcweM6TByfzEHGO9ND274JcOY',
};

const Jwk = z.object({
  kty: z.literal('OKP').describe('An octet key pair (RFC 8037).'),
  crv: z.literal('Ed25519').describe('The curve.'),
  x: z.string().describe('The public key, base64url.'),
});

const DidDocument = z
  .object({
    '@context': z.array(z.string()).describe('JSON-LD contexts of the document.'),
    id: z.string().describe('`did:web:` and the host of this server.'),
    verificationMethod: z
      .array(
        z.object({
          id: z.string().describe('Id of the key.'),
          type: z
            .enum(['JsonWebKey2020', 'EcdsaSecp256k1RecoveryMethod2020'])
            .describe('Type of a key that signs JWS, or EIP-712.'),
          controller: z.string().describe('Owner of the key: this service.'),
          publicKeyJwk: Jwk.optional().describe('Public key that signs JWS.'),
          blockchainAccountId: z
            .string()
            .optional()
            .describe('Address of a key that signs EIP-712, as CAIP-10.'),
        }),
      )
      .describe('All current and old keys, newest first, two for each rotation.'),
    assertionMethod: z.array(z.string()).describe('Ids of the two current keys.'),
  })
  .meta({ id: 'SigningKeys' });

const Jwks = z
  .object({
    keys: z
      .array(
        Jwk.extend({
          kid: z.string().describe('Id in the header of a JWS: a `did:key` that contains the key.'),
          use: z.literal('sig').describe('Use for signatures.'),
          alg: z.literal('EdDSA').describe('The algorithm.'),
        }),
      )
      .describe('Newest first.'),
  })
  .meta({ id: 'SigningJwks' });

const ABOUT =
  'These keys sign offers and receipts. Replaced keys stay in the list, so that old receipts can be verified.';

const DID_DOCUMENT: RouteDescription = {
  tag: 'Wallets',
  summary: 'The keys of offers and receipts',
  about: `${ABOUT} This is the document of \`did:web\`.`,
  response: jsonResponse(
    'All keys.',
    DidDocument,
    {
      '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/suites/jws-2020/v1'],
      id: DID,
      verificationMethod: [
        {
          id: `${DID}#${IDENTIFIER}`,
          type: 'JsonWebKey2020',
          controller: DID,
          publicKeyJwk: JWK,
        },
        {
          id: `${DID}#${ADDRESS}`,
          type: 'EcdsaSecp256k1RecoveryMethod2020',
          controller: DID,
          blockchainAccountId: `eip155:1:${ADDRESS}`,
        },
      ],
      assertionMethod: [`${DID}#${IDENTIFIER}`, `${DID}#${ADDRESS}`],
    },
    'no-store',
  ),
};

const JWKS: RouteDescription = {
  tag: 'Wallets',
  summary: 'The keys of offers and receipts, as JWKS',
  about: `${ABOUT} This list has the keys of JWS only.`,
  response: jsonResponse(
    'All keys of JWS.',
    Jwks,
    {
      keys: [{ ...JWK, kid: `did:key:${IDENTIFIER}#${IDENTIFIER}`, use: 'sig', alg: 'EdDSA' }],
    },
    'no-store',
  ),
};

export function signingKeyRoutes(signing: Signing): Route[] {
  const published = (path: string, describe: RouteDescription, body: () => unknown): Route => ({
    method: 'GET',
    path,
    root: true,
    auth: 'public',
    describe,
    handle: async (context) => {
      context.set('cache-control', `public, max-age=${KEYS_AGE_SECONDS}`);
      await context.json(200, body());
    },
  });
  return [
    published('/.well-known/did.json', DID_DOCUMENT, () => signing.didDocument()),
    published('/.well-known/jwks.json', JWKS, () => signing.jwks()),
  ];
}
