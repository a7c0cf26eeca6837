/**
 * Where a request comes from: the address and the country of its caller, as trusted proxies say it.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import proxyAddress from '@fastify/proxy-addr';
import ipaddr from 'ipaddr.js';
import type { Config } from '../config/config.ts';

/**
 * The address in `X-Forwarded-For`, from trusted proxies only; `undefined` where none is trusted.
 */
export function forwardedBy(
  trusted: boolean | readonly string[],
): ((request: IncomingMessage) => string | undefined) | undefined {
  if (trusted === false) return undefined;
  // Proxies append to what the caller sent, so `true` is the one hop that connects to us: believing
  // the whole list would let every caller choose its address.
  const trusts =
    trusted === true
      ? (_address: string, hop: number): boolean => hop === 0
      : proxyAddress.compile([...trusted]);
  return (request) => {
    const address = proxyAddress(request, trusts);
    // A proxy that passes on what is no address is worth no more than its own address.
    return isIP(address) === 0 ? undefined : address;
  };
}

/** The country by the header of a proxy that is believed; empty for any other, and without one. */
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
    // `XX` is how proxies say that they do not know.
    return /^[A-Z]{2}$/.test(country) && country !== 'XX' ? country : '';
  };
}

/** A network of IPv6 belongs to one host. */
const HOST_NETWORK_BYTES = 8;

/**
 * The key of bounds by address: an IPv4 address, or the /64 network of an IPv6 address, since one
 * host has all of it. Text that is no address counts as itself.
 */
export function countedAddress(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  if (address.kind() === 'ipv4') return address.toString();
  return Buffer.from(address.toByteArray()).toString('hex', 0, HOST_NETWORK_BYTES);
}
