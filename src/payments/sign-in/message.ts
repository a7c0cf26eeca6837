/**
 * Parses and builds the signed text: EIP-4361 for EVM wallets, the same text with "Solana account" for
 * Solana. Parsing takes linear time. `sign-in.ts` validates the fields.
 */

export interface SignInMessage {
  readonly family: 'evm' | 'solana';
  readonly domain: string;
  readonly address: string;
  readonly statement: string | undefined;
  readonly uri: string;
  readonly version: string;
  /** Number of an EVM chain, or genesis reference of a Solana cluster. */
  readonly chainReference: string;
  readonly nonce: string;
  readonly issuedAt: string;
  readonly expirationTime?: string | undefined;
  readonly notBefore?: string | undefined;
  readonly requestId?: string | undefined;
  readonly resources?: readonly string[] | undefined;
}

export type MessageProblem = 'PARSE_ERROR' | 'INVALID_MESSAGE' | 'MISSING_NONCE';

const HEADERS = {
  evm: ' wants you to sign in with your Ethereum account:',
  solana: ' wants you to sign in with your Solana account:',
} as const;

const TAGS = [
  ['URI: ', 'uri'],
  ['Version: ', 'version'],
  ['Chain ID: ', 'chainReference'],
  ['Nonce: ', 'nonce'],
  ['Issued At: ', 'issuedAt'],
  ['Expiration Time: ', 'expirationTime'],
  ['Not Before: ', 'notBefore'],
  ['Request ID: ', 'requestId'],
] as const;

type TaggedField = (typeof TAGS)[number][1];

export function parseMessage(text: string): SignInMessage | MessageProblem {
  const lines = text.split('\n');
  const [first = '', address = ''] = lines;
  const family: SignInMessage['family'] = first.endsWith(HEADERS.evm) ? 'evm' : 'solana';
  if (!first.endsWith(HEADERS[family])) return 'PARSE_ERROR';
  // The domain may have a scheme in front of it.
  const authority = first.slice(0, -HEADERS[family].length);
  const scheme = authority.indexOf('://');
  const domain = scheme === -1 ? authority : authority.slice(scheme + 3);
  const body = readStatement(lines);
  if (domain === '' || address === '' || body === undefined) return 'PARSE_ERROR';
  const tagged = readTags(lines, body.next);
  if (tagged === undefined) return 'PARSE_ERROR';
  const { nonce, uri, version, chainReference, issuedAt, ...optional } = tagged;
  if (!nonce) return 'MISSING_NONCE';
  if (!uri || !version || !chainReference || !issuedAt) return 'INVALID_MESSAGE';
  const { statement } = body;
  const required = { family, domain, address, uri, version, chainReference, nonce, issuedAt };
  return { ...required, ...optional, statement };
}

/** Line 3 is empty; then one statement line between empty lines, or no statement at all. */
function readStatement(
  lines: readonly string[],
): { statement: string | undefined; next: number } | undefined {
  if (lines[2] !== '') return undefined;
  let next = 3;
  if (lines[next] === '') next += 1;
  if (lines[next]?.startsWith('URI: ') === true) return { statement: undefined, next };
  const statement = lines[next];
  if (statement === undefined || lines[next + 1] !== '') return undefined;
  return { statement, next: next + 2 };
}

function readTags(lines: readonly string[], start: number): Partial<SignInMessage> | undefined {
  const fields: Partial<Record<TaggedField, string>> = {};
  let at = start;
  for (const [tag, field] of TAGS) {
    const line = lines[at];
    if (line?.startsWith(tag) !== true) continue;
    fields[field] = line.slice(tag.length);
    at += 1;
  }
  if (at === lines.length) return fields;
  if (lines[at] !== 'Resources:') return undefined;
  const resources = lines.slice(at + 1);
  if (!resources.every((line) => line.startsWith('- '))) return undefined;
  return { ...fields, resources: resources.map((line) => line.slice(2)) };
}

/** The exact text that a wallet signs for these fields. */
export function buildMessage(message: SignInMessage): string {
  const lines = [`${message.domain}${HEADERS[message.family]}`, message.address, ''];
  if (message.statement) lines.push(message.statement, '');
  // Without a statement EIP-4361 keeps two empty lines, the Solana text one.
  else if (message.family === 'evm') lines.push('');
  for (const [tag, field] of TAGS) {
    const value = message[field];
    if (value !== undefined && value !== '') lines.push(`${tag}${value}`);
  }
  if (message.resources !== undefined && message.resources.length > 0) {
    lines.push('Resources:', ...message.resources.map((resource) => `- ${resource}`));
  }
  return lines.join('\n');
}
