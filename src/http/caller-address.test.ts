/** What one host counts as, however many addresses it has. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countedAddress } from './caller-address.ts';

test('an address counts as itself in IPv4 and as its network in IPv6', () => {
  assert.equal(countedAddress('::ffff:203.0.113.7'), countedAddress('203.0.113.7'));
  assert.notEqual(countedAddress('203.0.113.7'), countedAddress('203.0.113.8'));
  assert.equal(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82a:f::2'));
  assert.notEqual(countedAddress('2a00:1450:4001:82a::1'), countedAddress('2a00:1450:4001:82b::1'));
  assert.equal(countedAddress(''), '');
});
