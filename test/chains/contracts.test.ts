/** The committed bytecode matches the committed source and the code deployed on Base. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PERMIT2_ADDRESS, x402UptoPermit2ProxyAddress } from '@x402/evm';
import { getContractAddress } from 'viem';
import { PERMIT2_ADDRESS as PERMIT2, x402UptoPermit2ProxyAddress as UPTO_PROXY } from '@x402/evm';
import { compileContracts, readFixture, sourceHash } from './compile.ts';
import { readPermit2Fixture } from './permit2.ts';

test('the bytecode of the test contracts matches their source', () => {
  const fixture = readFixture();
  assert.equal(fixture.sourceSha256, sourceHash());
  assert.deepEqual(compileContracts(), fixture);
});

test('the committed code of Permit2 and the upto proxy equals the deployed code', () => {
  const { deployer: from, contracts } = readPermit2Fixture();
  const addressOf = ({ salt, initCode: bytecode }: typeof contracts.permit2): string =>
    getContractAddress({ opcode: 'CREATE2', from, salt, bytecode });
  assert.equal(addressOf(contracts.permit2), PERMIT2);
  assert.equal(addressOf(contracts.uptoProxy), UPTO_PROXY);
  assert.deepEqual(
    [PERMIT2_ADDRESS, x402UptoPermit2ProxyAddress],
    [PERMIT2, UPTO_PROXY],
    'and where the official clients look for it',
  );
});
