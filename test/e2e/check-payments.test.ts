/** `farebox check` with payment rails: what an operator learns before the first payment. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { privateKeyToAccount } from 'viem/accounts';
import { runCommand } from '../../src/cli/cli.ts';
import { startAlteredNode } from '../chains/altered-node.ts';
import { USDC } from '../chains/anvil.ts';
import { USDC_MINT } from '../chains/solana.ts';
import { type WalletFixture, startWalletFixture } from './wallet-fixture.ts';
import { freePort } from '../support/free-port.ts';

interface Finding {
  readonly what: string;
  readonly state: string;
  readonly says: string;
}

const NOTHING_LOCAL = 'embedded: { enabled: false }\ndiscovery: { enabled: false }\n';

describe('farebox check with payment rails', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-check-'));
  let fixture: WalletFixture;

  before(async () => {
    fixture = await startWalletFixture();
  });
  after(async () => {
    await fixture.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function check(yaml: string) {
    writeFileSync(join(folder, 'farebox.yaml'), NOTHING_LOCAL + yaml);
    let out = '';
    let err = '';
    const code = await runCommand({
      argv: ['check', '--json'],
      env: { FAREBOX_DATA: join(folder, 'data') },
      cwd: folder,
      stdout: { write: (text) => void (out += text) },
      stderr: { write: (text) => void (err += text) },
      onSignal: () => undefined,
    });
    assert.equal(err, '');
    assert.ok(!existsSync(join(folder, 'data', 'farebox.db')), 'A check makes no database');
    const { findings } = JSON.parse(out) as { findings: Finding[] }; // what `--json` prints
    const of = (what: string): Finding => {
      const found = findings.find((finding) => finding.what === what);
      assert.ok(found !== undefined, out);
      return found;
    };
    return { code, out, base: () => of('payments base'), solana: () => of('payments solana'), of };
  }

  function gasAddress(): `0x${string}` {
    const key = /gasKey: '(0x[0-9a-f]{64})'/.exec(fixture.yaml)?.[1] ?? '';
    return privateKeyToAccount(key as `0x${string}`).address; // by the pattern
  }

  test('`farebox check` reports the chain of each rail and the balance of its fee key', async () => {
    const { code, out, base, solana } = await check(fixture.yaml);
    assert.equal(code, 0, out);
    assert.deepEqual(base(), {
      what: 'payments base',
      state: 'ok',
      says: `settles on eip155:8453; ${gasAddress()} has 1.000000 ETH for network fees`,
    });
    assert.equal(solana().state, 'ok');
    assert.match(
      solana().says,
      /^settles on solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp; \w{32,44} has 10\.000000 SOL for network fees$/,
    );
  });

  test('`farebox check` reports a node of another chain', async () => {
    const { code, base, solana } = await check(
      fixture.yaml
        .replace('base: {', 'base: { network: eip155:84532,')
        .replace('solana: {', 'solana: { network: solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1,'),
    );
    assert.equal(code, 1);
    assert.equal(base().state, 'wrong');
    assert.match(base().says, /The node serves chain 8453, not eip155:84532/);
    assert.equal(solana().state, 'wrong');
    assert.match(solana().says, /The node serves solana:5eykt\w+, not solana:EtWTR\w+/);
  });

  test('`farebox check` reports unreachable nodes and facilitators without their addresses', async () => {
    const port = await freePort();
    const gone = `http://127.0.0.1:${port}/secret-path`;
    const away = await check(
      fixture.yaml.replace(fixture.anvil.rpcUrl, gone).replace(fixture.solana.rpcUrl, gone),
    );
    assert.equal(away.code, 1);
    for (const { state, says } of [away.base(), away.solana()]) {
      assert.equal(state, 'wrong');
      assert.match(says, /^It could not be checked: \S/);
      assert.doesNotMatch(says, /secret-path/);
    }
    const external = await check(
      `${fixture.yaml}  facilitator: { url: ${gone}, timeoutSeconds: 1 }\n`,
    );
    assert.equal(external.code, 1);
    assert.deepEqual([external.base().state, external.solana().state], ['wrong', 'wrong']);
    assert.doesNotMatch(external.base().says, /secret-path/);
  });

  test('`farebox check` warns of a low fee key and fails for an empty one', async () => {
    const low = await check(
      fixture.yaml
        .replace('warnBelowEth: 0', 'warnBelowEth: 5')
        .replace('warnBelowSol: 0', 'warnBelowSol: 50'),
    );
    assert.equal(low.code, 0, low.out);
    assert.equal(low.base().state, 'note');
    assert.match(
      low.base().says,
      /holds less than 5 ETH; 0x\w+ has 1\.000000 ETH for network fees$/,
    );
    assert.match(low.solana().says, /holds less than 50 SOL/);
    await fixture.anvil.fund(gasAddress(), 12_345_678_901n);
    const empty = await check(fixture.yaml);
    assert.equal(empty.code, 1);
    assert.equal(empty.base().state, 'wrong');
    assert.match(empty.base().says, /cannot pay for a settlement; 0x\w+ has 0\.000000 ETH/);
  });

  test('`farebox check` rejects a receiver that is a token account on the chain', async () => {
    // The mint has a key of its own, as token accounts of older wallets do.
    const wrong = await check(fixture.yaml.replace(fixture.receiver.address, USDC_MINT));
    assert.equal(wrong.code, 1);
    assert.equal(wrong.solana().state, 'wrong');
    assert.match(wrong.solana().says, /is an account of the program Tokenkeg\w+, not a wallet/);
    assert.doesNotMatch(wrong.solana().says, /create it/);
  });

  test('`farebox check` reads a stake at the block that gives daily credit', async () => {
    const staking = `  staking: { rpcUrl: '${fixture.anvil.rpcUrl}', contract: '${USDC}' }\n`;
    const young = await check(fixture.yaml + staking);
    assert.equal(young.code, 1);
    assert.match(young.of('payments staking').says, /cannot be read, .*The chain began after/);
    const aged = await startAlteredNode(fixture.anvil.rpcUrl);
    aged.alter = async ({ method, params }, ask) => {
      const answer = (await ask()) as { result: { timestamp: string } }; // of a block, below
      if (method !== 'eth_getBlockByNumber' || params[0] !== '0x0') return answer;
      return { result: { ...answer.result, timestamp: '0x1' } };
    };
    try {
      const old = await check(fixture.yaml + staking.replace(fixture.anvil.rpcUrl, aged.url));
      assert.equal(old.of('payments staking').state, 'ok', old.out);
    } finally {
      await aged.stop();
    }
  });

  test('`farebox check` reports that there is no rail', async () => {
    const { code, of } = await check('');
    assert.equal(code, 0);
    assert.equal(of('payments').state, 'note');
  });
});
