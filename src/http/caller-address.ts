/** The address and the country of a caller, as reported by trusted proxies. */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import proxyAddress from '@fastify/proxy-addr';
import ipaddr from 'ipaddr.js';
import type { Config } from '../config/config.ts';

/** An address with the port that some proxies add: of version 4, or of version 6 in brackets. */
const PORT = /^(?:([\d.]+):\d+|\[([\da-f:.]+)\](?::\d+)?)$/i;

function withoutPort(address: string): string {
  return address.replace(PORT, '$1$2');
}

/** Returns a reader of `X-Forwarded-For`; `undefined` if no proxy is trusted. */
export function forwardedBy(
  trusted: boolean | readonly string[],
): ((request: IncomingMessage) => string | undefined) | undefined {
  if (trusted === false) return undefined;
  // Proxies append to the header of the caller, so `true` trusts only the connected peer; with the
  // whole list every caller could choose its address.
  const isListed = trusted === true ? undefined : proxyAddress.compile([...trusted]);
  const trusts = (address: string, hop: number): boolean =>
    isListed === undefined ? hop === 0 : isListed(withoutPort(address), hop);
  return (request) => {
    if (request.headers['x-forwarded-for'] === undefined) return undefined;
    const address = withoutPort(proxyAddress(request, trusts));
    // Falls back to the address of the proxy.
    return isIP(address) === 0 ? undefined : address;
  };
}

/** Returns a reader of the country header, with an empty result unless a trusted proxy sent one. */
export function countryBy({
  countryHeader,
  trustProxy,
}: Config['http']): ((request: IncomingMessage) => string) | undefined {
  if (countryHeader === undefined) return undefined;
  const name = countryHeader.toLowerCase();
  const trusts =
    typeof trustProxy === 'boolean' ? () => trustProxy : proxyAddress.compile([...trustProxy]);
  return ({ headers, socket }) => {
    const given = headers[name];
    if (typeof given !== 'string' || !trusts(socket.remoteAddress ?? '', 0)) return '';
    const country = given.trim().toUpperCase();
    // `XX` means unknown.
    return /^[A-Z]{2}$/.test(country) && country !== 'XX' ? country : '';
  };
}

const HOST_NETWORK_BYTES = 8;

/**
 * Returns the key of limits by address: an IPv4 address, or the /64 network of an IPv6 address,
 * since one host has all of it. Other text is its own key.
 */
export function countedAddress(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  if (address.kind() === 'ipv4') return address.toString();
  return Buffer.from(address.toByteArray()).toString('hex', 0, HOST_NETWORK_BYTES);
}
