/** Callers of the nodes of the chain: single calls and batches, a third of them with an idempotency key. */
import { USDC } from './evm-chain.ts';
import { send } from './http.ts';
import type { Town } from './town.ts';
import { world } from './world.ts';

const PATIENCE_MS = 30_000;
const MAX_PAUSE_MS = 1_000;
/** Only the response to a single call can be streamed. */
const MAX_CALLS = [1, 6];
const MAX_TRIES = 20;
const ADDRESS_DIGITS = 40;
export const RESULT_NANO = 12_500n;
const ERROR_NANO = 3_125n;
/** An item without a result from any node costs nothing, but a node can return this error too. */
const NO_RESULT = -32_603;

export async function callNodes(town: Town): Promise<void> {
  const { random } = world();
  for (let count = 1; !town.isOver; count += 1) {
    await world().sleep(random.between(1, MAX_PAUSE_MS));
    const { secret, name } = random.pick(town.accounts);
    const calls = Array.from({ length: random.between(1, random.pick(MAX_CALLS)) }, (_, id) => {
      const [method, ...params] = newCall(count * 16 + id);
      return { jsonrpc: '2.0', id, method, params };
    });
    const rpc = `rpc-${count}`;
    const key = random.once(3) ? rpc : undefined;
    const firsts = calls.map(({ params }) => params[0]);
    town.nodeCalls.set(rpc, firsts);
    const headers = {
      ...(key !== undefined && { 'idempotency-key': key }),
      'x-svc-metadata': JSON.stringify({ rpc, key }),
    };
    for (let tries = key === undefined ? 1 : MAX_TRIES; tries > 0; tries -= 1) {
      const reply = await send(`${town.url()}/crypto/rpc/base-mainnet`, {
        secret,
        headers,
        body: calls.length === 1 ? calls[0]! : calls,
        patienceMs: random.once(4) ? random.between(1, 100) : PATIENCE_MS,
      });
      const { status, requestId, body = '' } = reply ?? {};
      const isInternal = status === 500;
      const expectedNano = status === 200 ? priceOf(body) : undefined;
      town.seen.push({ caller: name, key, status, requestId, expectedNano, isInternal });
      const what = `${status ?? 'no response'} ${requestId ?? ''} for ${calls.length} calls`;
      world().note(`${name} saw ${what}`);
      if (status === 200) break;
      await world().sleep(random.between(100, 3_000));
    }
  }
}

/** The first parameter is a text if a node must run the call; no other call has it. */
function newCall(id: number): readonly unknown[] {
  const address = `0x${id.toString(16).padStart(ADDRESS_DIGITS, '0')}`;
  return world().random.pick([
    ['eth_blockNumber'],
    ['eth_chainId'],
    ['eth_getBalance', address, 'latest'],
    ['eth_getCode', address, 'latest'],
    // The contract has no such function.
    ['eth_call', { to: USDC, data: '0x00000000' }, 'latest'],
  ]);
}

/** `undefined` if it is not known what an error has cost. */
function priceOf(body: string): bigint | undefined {
  const items = [JSON.parse(body) as { error?: { code: number } }].flat(); // JSON-RPC
  if (items.some(({ error }) => error?.code === NO_RESULT)) return undefined;
  return items.reduce(
    (sum, { error }) => sum + (error === undefined ? RESULT_NANO : ERROR_NANO),
    0n,
  );
}
