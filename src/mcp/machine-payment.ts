/**
 * Payments of the Machine Payments Protocol in MCP messages: the challenge is in `_meta` of a result
 * that requires a payment, the credential in `_meta` of a call, the receipt in `_meta` of its result.
 * They are decoded there, and headers of the routes.
 */
import { isJsonObject } from '../json/json-scan.ts';
import type { Json } from './protocol.ts';

const CREDENTIAL = 'org.paymentauth/credential';
const REQUIRED = 'org.paymentauth/payment-required';
const RECEIPT = 'org.paymentauth/receipt';
const PARAMETER = /\b([a-z]+)="([^"]*)"/g;

/** Name and value of the header for the credential of a call. */
export function credentialHeader(meta: Json): readonly [name: string, value: string] | undefined {
  const credential = meta[CREDENTIAL];
  if (credential === undefined) return undefined;
  const { challenge, ...rest } = isJsonObject(credential) ? credential : {};
  const { request, ...others } = isJsonObject(challenge) ? challenge : {};
  const wire = { challenge: { ...others, request: encoded(request) }, ...rest };
  const field = others['header'] === undefined ? 'authorization' : 'payment-authorization';
  return [field, `Payment ${encoded(wire)}`];
}

/** The challenge of a 402 response for `_meta`; empty without a challenge. */
export function challengeMeta(header: string | undefined): Json {
  if (header?.startsWith('Payment ') !== true) return {};
  const { request = '', ...others } = Object.fromEntries(
    Array.from(header.matchAll(PARAMETER), ([, name = '', value]) => [name, value]),
  );
  const challenge = { ...others, request: decoded(request) };
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

/** Sorts the members of objects by name, as they were signed (RFC 8785). */
function sorted(value: unknown): unknown {
  if (!isJsonObject(value)) return value;
  const members = Object.entries(value).map(([name, member]) => [name, sorted(member)] as const);
  return Object.fromEntries(members.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
