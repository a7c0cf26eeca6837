/**
 * Validates the text of a caller-supplied URL before any lookup: http or https, no credentials, a
 * plain host. A numeric host must be a dotted quad: `2130706433`, `0x7f.1` and full-width digits
 * are rejected even if they mean a public address.
 */
import { isIP } from 'node:net';
import { Fault } from '../core/faults.ts';

/** Long enough for signed storage URLs. */
export const MAX_URL_CHARS = 8_192;

/** Names that are valid only inside a network: never looked up. */
const INSIDE_SUFFIXES = ['.local', '.internal', '.intranet', '.lan', '.home.arpa', '.onion'];

export interface GuardedUrl {
  readonly url: URL;
  /** Without the brackets of IPv6 and without a trailing dot. */
  readonly hostname: string;
  readonly isLiteral: boolean;
  readonly port: number;
}

export function unsafe(message: string): Fault {
  return new Fault('UNSAFE_URL', { message });
}

export function parseGuardedUrl(text: string): GuardedUrl {
  if (text.length > MAX_URL_CHARS) {
    throw unsafe(`The URL is longer than ${MAX_URL_CHARS} characters`);
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\/[^/\\?#]+/i.test(text)) {
    throw unsafe('The URL must start with http:// or https:// and name a host');
  }
  if (hasControl(text)) throw unsafe('The URL must not contain spaces or control characters');
  if (url.username !== '' || url.password !== '') {
    throw unsafe('The URL must not contain credentials');
  }
  return { url, ...readHost(url, text), port: portOf(url) };
}

function readHost(url: URL, text: string): Pick<GuardedUrl, 'hostname' | 'isLiteral'> {
  const bare = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
  const version = isIP(bare);
  const written = /^https?:\/\/([^/\\?#]+)/i.exec(text)?.[1] ?? '';
  if (version === 4 && written.replace(/:\d*$/, '') !== bare) {
    throw unsafe('The IPv4 address of the URL must be written as four decimal numbers');
  }
  if (version === 0 && !isPublicName(bare)) {
    throw unsafe('The URL does not lead to a public address');
  }
  return { hostname: bare, isLiteral: version !== 0 };
}

function isPublicName(name: string): boolean {
  if (isLocalName(name)) return true; // checked by the address rule
  if (name.length > 253 || !name.includes('.')) return false;
  return !INSIDE_SUFFIXES.some((suffix) => name.endsWith(suffix));
}

export function isLocalName(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}

function hasControl(text: string): boolean {
  return Array.from(text).some((char) => char <= ' ' || char === '\u007f');
}

function portOf(url: URL): number {
  if (url.port !== '') return Number(url.port);
  return url.protocol === 'https:' ? 443 : 80;
}
