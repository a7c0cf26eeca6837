/**
 * Which addresses count as public. The rule is an allowlist: global unicast and nothing else, so
 * that a range nobody thought of is refused. Forms that carry an IPv4 address inside IPv6 are
 * refused as such, whatever they carry. Operators can open networks of their own by CIDR.
 */
import { networkInterfaces } from 'node:os';
import ipaddr from 'ipaddr.js';

type Address = ReturnType<typeof ipaddr.parse>;
type Network = [Address, number];

/** Addresses that are global unicast on paper, and yet lead inside. */
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

/** IPv6 hands out global unicast addresses from this block only, RFC 4291 and IANA's registry. */
const GLOBAL_UNICAST_V6: Network = ipaddr.parseCIDR('2000::/3');

/** Says whether an address may be connected to. */
export type AddressRule = (address: string) => 'public' | 'allowed' | 'refused';

/** The rule of one guard; `allow` lists CIDRs that the operator opens beyond public addresses. */
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

/** A public address of this very machine leads to what listens here, firewalls aside. */
function isOwn(address: string): boolean {
  return Object.values(networkInterfaces()).some((list) =>
    list?.some((own) => own.address === address),
  );
}
