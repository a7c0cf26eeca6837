/** The counted address of a host with several addresses. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import { countedAddress, forwardedBy } from './caller-address.ts';

test('limits by address count an IPv4 address, and the network of an IPv6 address', () => {
  assert.equal(countedAddress('::ffff:203.0.113.7'), countedAddress('203.0.113.7'));
  assert.notEqual(countedAddress('203.0.113.7'), countedAddress('203.0.113.8'));
  assert.equal(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82a:f::2'));
  assert.notEqual(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82b::1'));
  assert.equal(countedAddress(''), '');
});

test('a proxy may add the port of the caller to its address', () => {
  const read = forwardedBy(true);
  const addressOf = (forwarded: string) => {
    const headers = { 'x-forwarded-for': forwarded };
    const request = { headers, socket: { remoteAddress: '10.0.0.1' } };
    return read?.(request as unknown as IncomingMessage); // the members that it reads
  };
  assert.equal(addressOf('198.51.100.1, 203.0.113.7'), '203.0.113.7');
  assert.equal(addressOf('203.0.113.7:50123'), '203.0.113.7');
  assert.equal(addressOf('[2a00:1450:4001:82a::1]:443'), '2a00:1450:4001:82a::1');
  assert.equal(addressOf('[2a00:1450:4001:82a::1]'), '2a00:1450:4001:82a::1');
  assert.equal(addressOf('unknown'), undefined);
  assert.equal(addressOf('203.0.113.7:x'), undefined);
});

test('a trusted proxy is known by its address with a port, behind another proxy', () => {
  const read = forwardedBy(['10.0.0.0/8', 'fd00::/8']);
  for (const proxy of ['10.0.0.2', '10.0.0.2:50124', '[fd00::2]:50124']) {
    const headers = { 'x-forwarded-for': `198.51.100.1, 203.0.113.7:50123, ${proxy}` };
    const request = { headers, socket: { remoteAddress: '10.0.0.1' } };
    assert.equal(read?.(request as unknown as IncomingMessage), '203.0.113.7', proxy); // as above
  }
});
