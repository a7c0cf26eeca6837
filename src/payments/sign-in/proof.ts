/**
 * The `SIGN-IN-WITH-X` header in its two layouts, brought to one `Proof`:
 * the structured CAIP-122 fields, from which the signed text is rebuilt, and
 * `{address, message, signature, timestamp, chainId}`, whose text is taken as it is.
 * Garbage ends in a Fault with an `X402_SIGN_IN_*` code, never in another exception.
 */
import { type FaultCode, Fault } from '../../core/faults.ts';
import { decodeHeader } from '../header-codec.ts';
import { type SignInMessage, buildMessage, parseMessage } from './message.ts';

export interface Proof {
  readonly message: SignInMessage;
  /** The text whose signature is checked. */
  readonly text: string;
  readonly signature: string;
  /** The address that stands beside the message. */
  readonly address: string;
  /** CAIP-2, from the header when it names one, else from the message. */
  readonly chain: string;
  /** The header's own time in milliseconds, when it has one. */
  readonly timestampMs: number | undefined;
}

/** Node bounds all headers together to 16 KB; a proof is about 0.7 KB. */
const MAX_HEADER_CHARS = 8_192;
const MAX_FIELD_CHARS = 6_144;
const MAX_RESOURCES = 32;
const TYPES = new Set(['eip191', 'eip1271', 'eip6492', 'ed25519', 'siws']);

type Fields = Readonly<Record<string, unknown>>;

/** A 401 with the code `X402_SIGN_IN_<reason>`. */
export function refuseSignIn(reason: SignInReason, message?: string): Fault {
  const code: FaultCode = `X402_SIGN_IN_${reason}`;
  return new Fault(
    code,
    message === undefined ? { canRetry: false } : { message, canRetry: false },
  );
}

export type SignInReason = FaultCode extends infer C
  ? C extends `X402_SIGN_IN_${infer R}`
    ? R
    : never
  : never;

/** Decodes a header value. Throws a Fault with an `X402_SIGN_IN_*` code. */
export function readProof(header: string): Proof {
  const fields = decodeHeader(header, MAX_HEADER_CHARS);
  if (fields === undefined) throw refuseSignIn('INVALID_PAYLOAD');
  return typeof fields['message'] === 'string' ? readTextForm(fields) : readStructuredForm(fields);
}

function readTextForm(fields: Fields): Proof {
  const text = requireText(fields, 'message');
  const address = requireText(fields, 'address');
  const signature = requireText(fields, 'signature');
  checkType(fields);
  const message = parseMessage(text);
  if (typeof message === 'string') throw refuseSignIn(message);
  const timestamp = fields['timestamp'];
  return {
    message,
    text,
    signature,
    address,
    chain: readChain(fields['chainId'], message),
    timestampMs:
      timestamp === undefined || timestamp === null ? undefined : readTimestamp(timestamp),
  };
}

function readTimestamp(value: unknown): number {
  const timestampMs = typeof value === 'string' ? Number(value) : value;
  if (typeof timestampMs !== 'number' || !Number.isFinite(timestampMs)) {
    throw refuseSignIn('INVALID_PAYLOAD', 'The timestamp must be Unix time in milliseconds');
  }
  return timestampMs;
}

function readStructuredForm(fields: Fields): Proof {
  checkType(fields);
  const chainId = requireText(fields, 'chainId', 'INVALID_CHAIN_ID');
  const [namespace, reference] = chainId.split(':');
  const isKnown = namespace === 'eip155' || namespace === 'solana';
  if (!isKnown || reference === undefined || !/^[-_a-zA-Z0-9]{1,32}$/.test(reference)) {
    throw refuseSignIn('INVALID_CHAIN_ID');
  }
  const message: SignInMessage = {
    family: namespace === 'solana' ? 'solana' : 'evm',
    domain: requireText(fields, 'domain'),
    address: requireText(fields, 'address'),
    statement: optionalText(fields, 'statement'),
    uri: requireText(fields, 'uri'),
    version: requireText(fields, 'version'),
    chainReference: reference,
    nonce: requireText(fields, 'nonce', 'MISSING_NONCE'),
    issuedAt: requireText(fields, 'issuedAt'),
    expirationTime: optionalText(fields, 'expirationTime'),
    notBefore: optionalText(fields, 'notBefore'),
    requestId: optionalText(fields, 'requestId'),
    resources: readResources(fields['resources']),
  };
  return {
    message,
    text: buildMessage(message),
    signature: requireText(fields, 'signature'),
    address: message.address,
    chain: chainId,
    timestampMs: undefined,
  };
}

function checkType(fields: Fields): void {
  const type = fields['type'];
  if (type === undefined || type === null) return;
  if (typeof type !== 'string' || !TYPES.has(type)) {
    throw refuseSignIn('INVALID_PAYLOAD', 'The type must be eip191, eip1271 or ed25519');
  }
}

function requireText(
  fields: Fields,
  name: string,
  reason: SignInReason = 'INVALID_PAYLOAD',
): string {
  const value = fields[name];
  // A chain or timestamp may be a number on the wire, a text field may not.
  if (typeof value !== 'string' || value === '' || value.length > MAX_FIELD_CHARS) {
    throw refuseSignIn(
      reason,
      reason === 'INVALID_PAYLOAD' ? `The field ${name} is missing` : undefined,
    );
  }
  // A line break inside a field would forge another line of the rebuilt text.
  if (name !== 'message' && /[\r\n]/.test(value)) throw refuseSignIn('INVALID_PAYLOAD');
  return value;
}

function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value === undefined || value === null || value === '') return undefined;
  return requireText(fields, name);
}

function readResources(value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value) || value.length > MAX_RESOURCES) throw refuseSignIn('INVALID_PAYLOAD');
  return value.map((item: unknown) => requireText({ resource: item }, 'resource'));
}

/** Accepts 8453, "8453" and CAIP-2; without a chain beside it, the message speaks for itself. */
function readChain(value: unknown, message: SignInMessage): string {
  const own = chainOfMessage(message);
  if (value === undefined || value === null) return own;
  const text = typeof value === 'number' ? String(value) : value;
  if (typeof text !== 'string' || !/^(eip155:|solana:)?[-_a-zA-Z0-9]{1,32}$/.test(text)) {
    throw refuseSignIn('INVALID_CHAIN_ID');
  }
  if (text.includes(':')) return text;
  return /^\d+$/.test(text) ? `eip155:${text}` : `solana:${text}`;
}

/** The CAIP-2 chain that the signed text names. */
export function chainOfMessage(message: SignInMessage): string {
  const namespace = message.family === 'solana' ? 'solana' : 'eip155';
  return `${namespace}:${message.chainReference}`;
}
