/** The nonce that binds a payment to this server, as other languages can make it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keccak256, toBytes } from 'viem';
import { Fault } from '../../core/faults.ts';
import { boundNonce, checkBoundNonce, readSalt } from './bound-nonce.ts';
import type { SignedPayment } from '../payment.ts';
import { BOUND_NONCE } from '../required-header.ts';

const SALT = `0x${'0123456789abcdef'.repeat(4)}` as const;
const RESOURCE = 'https://api.example.com/api/v1/chat/completions';
const ORIGIN = 'https://api.example.com';

function paymentOf(kind: 'erc3009' | 'permit2' | 'solana', nonce: string): SignedPayment {
  const authorization = { kind, nonce: kind === 'permit2' ? BigInt(nonce) : nonce };
  return { authorization } as never; // what the check reads
}

test('the nonce is the Keccak-256 hash of four lines', () => {
  const lines = ['x402 bound nonce v1', ORIGIN, RESOURCE, SALT].join('\n');
  const nonce = '0x38aa3890d7308a0343970767f4abc968777237c0434c10f13f728461c6347cc5';
  assert.equal(boundNonce(ORIGIN, RESOURCE, SALT), keccak256(toBytes(lines)));
  assert.equal(boundNonce(ORIGIN, RESOURCE, SALT), nonce);
});

test('a payment that is bound to another origin, resource or salt is refused, on both schemes of Base', () => {
  const right = boundNonce(ORIGIN, RESOURCE, SALT);
  for (const kind of ['erc3009', 'permit2'] as const) {
    checkBoundNonce(paymentOf(kind, right), SALT, RESOURCE);
    checkBoundNonce(paymentOf(kind, '0x12'), undefined, RESOURCE);
    for (const wrong of [
      boundNonce('https://shop.example', RESOURCE, SALT),
      boundNonce(ORIGIN, `${ORIGIN}/api/v1/embeddings`, SALT),
      boundNonce(ORIGIN, RESOURCE, SALT.replace('0x0', '0x1')),
      '0x12',
    ]) {
      assert.throws(() => checkBoundNonce(paymentOf(kind, wrong), SALT, RESOURCE), Fault);
    }
  }
  assert.throws(() => checkBoundNonce(paymentOf('solana', ''), SALT, RESOURCE), Fault);
});

test('a client that repeats the offer has bound nothing; a malformed salt is refused', () => {
  const saltIn = (info: unknown) => readSalt({ [BOUND_NONCE]: { info } });
  assert.equal(readSalt(undefined), undefined);
  assert.equal(saltIn({ hash: 'keccak256' }), undefined);
  assert.equal(saltIn({ hash: 'keccak256', salt: SALT }), SALT);
  for (const bad of ['', '0x12', SALT.toUpperCase(), 7, {}]) {
    assert.throws(() => saltIn({ salt: bad }), Fault);
  }
});
