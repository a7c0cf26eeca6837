/**
 * Payments of the Machine Payments Protocol in the messages of MCP: the challenge of a 402 beside a
 * result that says what to pay, the credential in the `_meta` of a call, the receipt in that of its
 * result. They stand there decoded; to the routes they go as the headers that they are.
 */
import { isJsonObject } from '../json/json-scan.ts';
import type { Json } from './protocol.ts';

const CREDENTIAL = 'org.paymentauth/credential';
const REQUIRED = 'org.paymentauth/payment-required';
const RECEIPT = 'org.paymentauth/receipt';
const PARAMETER = /\b([a-z]+)="([^"]*)"/g;

/** The name and the value of the header for a credential that a call has with it. */
export function credentialHeader(meta: Json): readonly [name: string, value: string] | undefined {
  const credential = meta[CREDENTIAL];
  if (credential === undefined) return undefined;
  const { challenge, ...rest } = isJsonObject(credential) ? credential : {};
  const { request, ...asked } = isJsonObject(challenge) ? challenge : {};
  const wire = { challenge: { ...asked, request: encoded(request) }, ...rest };
  const field = asked['header'] === undefined ? 'authorization' : 'payment-authorization';
  return [field, `Payment ${encoded(wire)}`];
}

/** What a result says beside the offer of x402; nothing where the 402 has no challenge. */
export function challengeMeta(header: string | undefined): Json {
  if (header?.startsWith('Payment ') !== true) return {};
  const { request = '', ...asked } = Object.fromEntries(
    Array.from(header.matchAll(PARAMETER), ([, name = '', value]) => [name, value]),
  );
  const challenge = { ...asked, request: decoded(request) };
  return { [REQUIRED]: { httpStatus: 402, challenges: [challenge] } };
}

export function receiptMeta(header: unknown): Json {
  return typeof header === 'string' ? { [RECEIPT]: decoded(header) } : {};
}

function decoded(text: string): unknown {
  return JSON.parse(Buffer.from(text, 'base64url').toString());
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(sorted(value)) ?? '').toString('base64url');
}

/** With the members of objects in the order of their names, as they were signed (RFC 8785). */
function sorted(value: unknown): unknown {
  if (!isJsonObject(value)) return value;
  const members = Object.entries(value).map(([name, member]) => [name, sorted(member)] as const);
  return Object.fromEntries(members.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
