/** The counted address of a host with several addresses. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countedAddress } from './caller-address.ts';

test('limits by address count an IPv4 address, and the network of an IPv6 address', () => {
  assert.equal(countedAddress('::ffff:203.0.113.7'), countedAddress('203.0.113.7'));
  assert.notEqual(countedAddress('203.0.113.7'), countedAddress('203.0.113.8'));
  assert.equal(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82a:f::2'));
  assert.notEqual(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82b::1'));
  assert.equal(countedAddress(''), '');
});
