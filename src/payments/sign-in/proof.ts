/**
 * Reads the two layouts of the `SIGN-IN-WITH-X` header: the structured CAIP-122 fields, from which the
 * signed text is rebuilt, and `{address, message, signature, timestamp, chainId}` with the signed text.
 */
import { Fault, type FaultCode } from '../../core/faults.ts';
import { decodeHeader } from '../header-codec.ts';
import { type SignInMessage, buildMessage, parseMessage } from './message.ts';

export interface Proof {
  readonly message: SignInMessage;
  readonly text: string;
  readonly signature: string;
  /** The address in the header, outside of the message. */
  readonly address: string;
  /** CAIP-2, from the header or, if it has none, from the message. */
  readonly chain: string;
  /** The time of the header in Unix milliseconds, if it has one. */
  readonly timestampMs: number | undefined;
}

/** A proof has about 700 characters. */
const MAX_HEADER_CHARS = 8_192;
const MAX_FIELD_CHARS = 6_144;
const MAX_RESOURCES = 32;
const TYPES: readonly unknown[] = ['eip191', 'eip1271', 'eip6492', 'ed25519', 'siws'];

type Fields = Readonly<Record<string, unknown>>;
type SignInReason<Code = FaultCode> = Code extends `X402_SIGN_IN_${infer Reason}` ? Reason : never;

export function signInError(reason: SignInReason, message?: string): Fault {
  const options = message === undefined ? {} : { message };
  return new Fault(`X402_SIGN_IN_${reason}`, { ...options, canRetry: false });
}

/** Decodes a header value. Throws a Fault with an `X402_SIGN_IN_*` code. */
export function readProof(header: string): Proof {
  const fields = decodeHeader(header, MAX_HEADER_CHARS);
  if (fields === undefined) throw signInError('INVALID_PAYLOAD');
  return typeof fields['message'] === 'string' ? readTextForm(fields) : readStructuredForm(fields);
}

function readTextForm(fields: Fields): Proof {
  const text = requireText(fields, 'message');
  const address = requireText(fields, 'address');
  const signature = requireText(fields, 'signature');
  checkType(fields);
  const message = parseMessage(text);
  if (typeof message === 'string') throw signInError(message);
  const chain = readChain(fields['chainId'], message);
  return { message, text, signature, address, chain, timestampMs: readTimestamp(fields) };
}

function readTimestamp({ timestamp }: Fields): number | undefined {
  if (timestamp === undefined || timestamp === null) return undefined;
  const timestampMs = typeof timestamp === 'string' ? Number(timestamp) : timestamp;
  if (typeof timestampMs !== 'number' || !Number.isFinite(timestampMs)) {
    throw signInError('INVALID_PAYLOAD', 'The timestamp must be Unix time in milliseconds');
  }
  return timestampMs;
}

function readStructuredForm(fields: Fields): Proof {
  checkType(fields);
  const chain = requireText({ chainId: caip2(fields['chainId']) }, 'chainId', 'INVALID_CHAIN_ID');
  const [namespace, reference] = chain.split(':');
  const isKnown = namespace === 'eip155' || namespace === 'solana';
  if (!isKnown || reference === undefined || !/^[-_a-zA-Z0-9]{1,32}$/.test(reference)) {
    throw signInError('INVALID_CHAIN_ID');
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
  const signature = requireText(fields, 'signature');
  const { address } = message;
  const text = buildMessage(message);
  return { message, text, signature, address, chain, timestampMs: undefined };
}

function checkType({ type }: Fields): void {
  if (type === undefined || type === null || TYPES.includes(type)) return;
  throw signInError('INVALID_PAYLOAD', 'The type must be eip191, eip1271 or ed25519');
}

function requireText(
  fields: Fields,
  name: string,
  reason: SignInReason = 'INVALID_PAYLOAD',
): string {
  const value = fields[name];
  if (typeof value !== 'string' || value === '' || value.length > MAX_FIELD_CHARS) {
    const isPayload = reason === 'INVALID_PAYLOAD';
    throw signInError(reason, isPayload ? `The field ${name} must be a text` : undefined);
  }
  // A line break in a field would add a line to the rebuilt text.
  if (name !== 'message' && /[\r\n]/.test(value)) throw signInError('INVALID_PAYLOAD');
  return value;
}

function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value === undefined || value === null || value === '') return undefined;
  return requireText(fields, name);
}

function readResources(value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value) || value.length > MAX_RESOURCES) throw signInError('INVALID_PAYLOAD');
  return value.map((item: unknown) => requireText({ resource: item }, 'resource'));
}

/** Makes 8453 and "8453" the CAIP-2 name of an EVM chain; returns other values unchanged. */
function caip2(value: unknown): unknown {
  const text = typeof value === 'number' ? String(value) : value;
  return typeof text === 'string' && /^\d+$/.test(text) ? `eip155:${text}` : text;
}

/** By default the chain of the message. */
function readChain(value: unknown, message: SignInMessage): string {
  if (value === undefined || value === null) return chainOfMessage(message);
  const text = caip2(value);
  if (typeof text !== 'string' || !/^(eip155:|solana:)?[-_a-zA-Z0-9]{1,32}$/.test(text)) {
    throw signInError('INVALID_CHAIN_ID');
  }
  return text.includes(':') ? text : `solana:${text}`;
}

export function chainOfMessage({ family, chainReference }: SignInMessage): string {
  return `${family === 'solana' ? 'solana' : 'eip155'}:${chainReference}`;
}
