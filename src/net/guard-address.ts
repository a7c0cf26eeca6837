/**
 * Decides which addresses count as public, by an allowlist: global unicast only, so that unlisted
 * ranges are rejected. IPv6 forms with an embedded IPv4 address are always rejected. Operators can
 * allow further networks by CIDR.
 */
import { networkInterfaces } from 'node:os';
import ipaddr from 'ipaddr.js';

type Address = ReturnType<typeof ipaddr.parse>;
type Network = [Address, number];

/** Global unicast addresses that lead to internal services. */
const INSIDE = [
  '168.63.129.16/32', // the virtual host of Azure: metadata and health
  '192.88.99.0/24', // 6to4 relay anycast, RFC 7526
  '198.18.0.0/15', // benchmarking, RFC 2544
  '64:ff9b:1::/48', // local-use NAT64, RFC 8215
  '2001::/23', // IETF protocol assignments: Teredo, ORCHID, benchmarking
  '2001:db8::/32', // documentation, RFC 3849
  '3fff::/20', // documentation, RFC 9637
  '2620:4f:8000::/48', // AS112
].map((cidr) => ipaddr.parseCIDR(cidr));

/** IANA assigns IPv6 global unicast from this block only (RFC 4291). */
const GLOBAL_UNICAST_V6: Network = ipaddr.parseCIDR('2000::/3');

export type AddressRule = (address: string) => 'public' | 'allowed' | 'refused';

/** Returns the rule of one guard; `allow` lists CIDRs in addition to public addresses. */
export function addressRule(allow: readonly string[]): AddressRule {
  const allowed = allow.map((cidr) => ipaddr.parseCIDR(cidr));
  return (text) => {
    if (!ipaddr.isValid(text)) return 'refused';
    const address = ipaddr.parse(text);
    if (isWithin(address, allowed)) return 'allowed';
    return isPublic(address) && !isOwn(text) ? 'public' : 'refused';
  };
}

function isPublic(address: Address): boolean {
  if (address.range() !== 'unicast') return false;
  if (isWithin(address, INSIDE)) return false;
  return address.kind() === 'ipv4' || isWithin(address, [GLOBAL_UNICAST_V6]);
}

function isWithin(address: Address, networks: readonly Network[]): boolean {
  return networks.some(
    ([network, bits]) =>
      network.kind() === address.kind() && address.match([network, bits] as [never, number]), // kinds are equal
  );
}

/** True for an address of this machine, which could reach local services. */
function isOwn(address: string): boolean {
  return Object.values(networkInterfaces()).some((list) =>
    list?.some((own) => own.address === address),
  );
}
