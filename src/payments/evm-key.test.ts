/** Our keys sign what viem's accounts sign, byte for byte. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hashTypedData, hexToBytes } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { permit2TypedData } from './extensions/upto.ts';
import { signTransaction } from './evm/fee-replacement.ts';
import { EvmKey } from './evm-key.ts';
import { BASE } from './networks.ts';

const FEES = { gas: 90_000n, maxFeePerGas: 2_000_000_000n, maxPriorityFeePerGas: 1n };

test('the address and every signature of a key are those of its account in viem', async () => {
  for (let round = 0; round < 20; round += 1) {
    const hex = generatePrivateKey();
    const key = new EvmKey(hexToBytes(hex));
    const account = privateKeyToAccount(hex);
    const { address } = account;
    assert.equal(key.address, address);
    const call = { to: address, data: hex, value: 0n, nonce: round, chainId: 8453 };
    const transaction = { ...call, ...FEES, type: 'eip1559' } as const;
    assert.equal(signTransaction(key, transaction), await account.signTransaction(transaction));
    const permit = permit2TypedData(BASE, {
      kind: 'permit2',
      from: address,
      to: address,
      token: address,
      ceiling: BigInt(hex),
      nonce: BigInt(round),
      deadline: 1n,
      validAfter: 0n,
      facilitator: address,
    });
    const digest = hexToBytes(hashTypedData(permit));
    assert.equal(key.sign(digest), await account.signTypedData(permit));
  }
});

test('a malformed key is refused', () => {
  assert.throws(() => new EvmKey(new Uint8Array(32)));
  assert.throws(() => new EvmKey(new Uint8Array(31).fill(1)));
  assert.throws(() => new EvmKey(new Uint8Array(32).fill(0xff)));
});
