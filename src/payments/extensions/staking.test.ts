/** A unit of stake gives credit once a day: with a real token and a staking contract on a private Base. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { STAKING, USDC, startAnvil } from '../../../test/chains/anvil.ts';
import type { AnvilChain } from '../../../test/chains/anvil.ts';
import { rpcError, startAlteredNode } from '../../../test/chains/altered-node.ts';
import type { AlteredNode } from '../../../test/chains/altered-node.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, dayOf, dayStartMs } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { Contradictions } from '../chain-log.ts';
import { openStakingReader } from './staking.ts';
import type { StakingReader } from './staking.ts';
import { until } from '../../../test/support/until.ts';

const UNIT = 1_000_000n;
const HELD = 25n * UNIT;
const GIVES = usdToNano(25);

function newWallet(): Hex {
  return privateKeyToAccount(generatePrivateKey()).address.toLowerCase() as Hex; // hex in lower case
}

describe('linked staking', () => {
  let anvil: AnvilChain;
  let node: AlteredNode;
  let clock: TestClock;
  let read: StakingReader;
  /** Each test has two days of its own, and the chain goes on. */
  let day = dayOf(Date.now()) + 2;

  before(async () => {
    anvil = await startAnvil();
    node = await startAlteredNode(anvil.rpcUrl);
  });
  after(async () => {
    await node.stop();
    await anvil.stop();
  });
  beforeEach(() => {
    day += 3;
    clock = new TestClock(dayStartMs(day) - 2 * HOUR_MS);
    node.alter = async (_call, ask) => await ask();
    read = reader();
  });

  function reader(
    contract: Hex = USDC,
    name = 'balanceOf',
    rpcUrl: string | readonly string[] = node.url,
  ): StakingReader {
    const settings = {
      rpcUrl,
      contract,
      function: name,
      decimals: 6,
      usdPerUnit: 1,
    };
    return openStakingReader(settings, clock, silentLog, new Contradictions(silentLog, []));
  }

  /** Moves the clock and the chain to a time of the day before or of the day. */
  async function at(ms: number): Promise<void> {
    clock.advance(ms - clock.nowMs());
    await anvil.client.setNextBlockTimestamp({ timestamp: BigInt(Math.floor(ms / 1000)) });
    await anvil.client.mine({ blocks: 1 });
  }

  async function move(from: Hex, to: Hex, units = HELD): Promise<void> {
    await anvil.client.impersonateAccount({ address: from });
    await anvil.fund(from, 10n ** 18n);
    await anvil.client.writeContract({
      account: from,
      chain: null,
      address: USDC,
      abi: [
        {
          type: 'function',
          name: 'transfer',
          stateMutability: 'nonpayable',
          inputs: [{ type: 'address' }, { type: 'uint256' }],
          outputs: [{ type: 'bool' }],
        },
      ],
      functionName: 'transfer',
      args: [to, units],
      gas: 200_000n,
    });
    await anvil.client.mine({ blocks: 1 });
  }

  async function creditOf(wallet: Hex): Promise<bigint | undefined> {
    const stake = await read(wallet);
    if (stake !== undefined) assert.equal(stake.day, dayOf(clock.nowMs()));
    return stake?.credit;
  }

  test('a stake that four wallets hold in turn gives its credit once a day', async () => {
    const wallets = [newWallet(), newWallet(), newWallet(), newWallet()];
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(wallets[0]!, HELD);
    await at(dayStartMs(day) + MINUTE_MS);
    const given = [];
    for (const [index, wallet] of wallets.entries()) {
      given.push(await creditOf(wallet));
      const next = wallets[index + 1];
      if (next !== undefined) await move(wallet, next);
    }
    assert.deepEqual(given, [GIVES, 0n, 0n, 0n]);
    // The same query through another process returns the same result.
    read = reader();
    assert.deepEqual(await Promise.all(wallets.map(creditOf)), [GIVES, 0n, 0n, 0n]);
    await at(dayStartMs(day + 1) + MINUTE_MS);
    assert.deepEqual(await Promise.all(wallets.map(creditOf)), [0n, 0n, 0n, GIVES]);
  });

  test('what moves over midnight counts for the wallet that held it ten minutes before', async () => {
    const [seller, buyer] = [newWallet(), newWallet()];
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(seller, HELD);
    await at(dayStartMs(day) - 5 * MINUTE_MS);
    await move(seller, buyer);
    await at(dayStartMs(day) + 1000);
    assert.deepEqual([await creditOf(seller), await creditOf(buyer)], [GIVES, 0n]);
    await at(dayStartMs(day + 1) + 1000);
    assert.deepEqual([await creditOf(seller), await creditOf(buyer)], [0n, GIVES]);
  });

  test('a stake that moves to another wallet counts once', async () => {
    const [first, second] = [newWallet(), newWallet()];
    read = reader(STAKING, 'stakedOf');
    await at(dayStartMs(day) - HOUR_MS);
    await stake(first, HELD);
    await at(dayStartMs(day) + HOUR_MS);
    assert.equal(await creditOf(first), GIVES);
    await stake(first, 0n);
    await stake(second, HELD);
    assert.deepEqual([await creditOf(first), await creditOf(second)], [GIVES, 0n]);
    await at(dayStartMs(day + 1) + HOUR_MS);
    assert.deepEqual([await creditOf(first), await creditOf(second)], [0n, GIVES]);
  });

  async function stake(wallet: Hex, amount: bigint): Promise<void> {
    await anvil.client.setStorageAt({
      address: STAKING,
      index: await slotOf(wallet),
      value: `0x${amount.toString(16).padStart(64, '0')}`,
    });
    await anvil.client.mine({ blocks: 1 });
  }

  test('a node without the state of that block yields no credit, and is not queried for newer state', async () => {
    const wallet = newWallet();
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(wallet, HELD);
    await at(dayStartMs(day) + HOUR_MS);
    node.alter = async ({ method }, ask) =>
      method === 'eth_call' ? rpcError(-32000, 'missing trie node') : await ask();
    assert.equal(await creditOf(wallet), undefined);
    const calls = node.seen.length;
    assert.equal(await creditOf(wallet), undefined);
    assert.equal(node.seen.length, calls, 'a failed question is not repeated at once');
    node.alter = async (_call, ask) => await ask();
    clock.advance(MINUTE_MS);
    assert.equal(await creditOf(wallet), GIVES);
    node.alter = async () => await Promise.reject(new Error('gone'));
    assert.equal(await creditOf(wallet), GIVES, 'known for the rest of the day');
    clock.advance(DAY_MS);
    assert.equal(await creditOf(wallet), undefined, 'yesterday says nothing of today');
  });

  test('the stake is read once a lagging chain has reached midnight', async () => {
    const wallet = newWallet();
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(wallet, HELD);
    clock.advance(HOUR_MS + 1000);
    assert.equal(await creditOf(wallet), undefined);
    await at(dayStartMs(day) + MINUTE_MS);
    assert.equal(await creditOf(wallet), GIVES);
  });

  test('one contract call that hangs delays a request for seconds only', async () => {
    const wallet = newWallet();
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(wallet, HELD);
    await at(dayStartMs(day) + HOUR_MS);
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    node.alter = async ({ method }, ask) => {
      if (method === 'eth_call') await held;
      return await ask();
    };
    const asked = creditOf(wallet);
    await hasSeen('eth_call');
    clock.advance(3_000);
    assert.equal(await asked, undefined);
    release();
    await settled(async () => (await creditOf(wallet)) === GIVES);
  });

  async function hasSeen(method: string): Promise<void> {
    await settled(async () => await Promise.resolve(node.seen.at(-1)?.method === method));
  }

  async function settled(isSo: () => Promise<boolean>): Promise<void> {
    await until(isSo);
  }

  test('two of several nodes must agree and none contradict', async () => {
    const wallet = newWallet();
    await at(dayStartMs(day) - HOUR_MS);
    await anvil.mint(wallet, HELD);
    await at(dayStartMs(day) + HOUR_MS);
    const third = await startAlteredNode(anvil.rpcUrl);
    read = reader(USDC, 'balanceOf', [node.url, anvil.rpcUrl, third.url]);
    node.alter = async ({ method }, ask) =>
      method === 'eth_call' ? { result: `0x${'f'.repeat(64)}` } : await ask();
    assert.equal(await creditOf(wallet), undefined);
    third.alter = async () => await Promise.reject(new Error('gone'));
    clock.advance(MINUTE_MS);
    assert.equal(await creditOf(wallet), undefined, 'one that lies and one that does not');
    node.alter = async () => await Promise.reject(new Error('gone'));
    clock.advance(MINUTE_MS);
    assert.equal(await creditOf(wallet), undefined, 'one alone');
    third.alter = async (_call, ask) => await ask();
    clock.advance(MINUTE_MS);
    assert.equal(await creditOf(wallet), GIVES);
    await third.stop();
  });

  test('many new wallets make a limited number of calls at once', async () => {
    await at(dayStartMs(day) + MINUTE_MS);
    assert.ok(await read(newWallet()));
    const held = Promise.withResolvers<void>();
    let asking = 0;
    node.alter = async (_call, ask) => {
      asking += 1;
      await held.promise;
      return await ask();
    };
    const crowd = Array.from({ length: 40 }, newWallet);
    let unknown = 0;
    const reads = crowd.map(async (wallet) => {
      const stake = await read(wallet);
      if (stake !== undefined) return;
      unknown += 1;
      // Requests beyond the bound fail immediately; then the node responds to the others.
      if (unknown === 8) held.resolve();
    });
    await Promise.all(reads);
    assert.deepEqual([unknown, asking], [8, 32]);
    assert.ok(await read(crowd.at(-1) ?? ''), 'it is asked about by its next request');
  });

  test('a Solana wallet has no stake there', async () => {
    assert.equal(await read('FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z'), undefined);
  });
});

/** Storage slot of an entry of the mapping in slot 0. */
async function slotOf(wallet: Hex): Promise<Hex> {
  const { encodeAbiParameters, keccak256 } = await import('viem');
  return keccak256(encodeAbiParameters([{ type: 'address' }, { type: 'uint256' }], [wallet, 0n]));
}
