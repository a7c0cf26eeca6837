/**
 * Linked staking: the daily credit in USD for a wallet's stake, read from a view function of a configured
 * contract.
 *
 * Invariant: a unit of stake counts once a day, even if it moves between wallets. The stakes of all wallets
 * are read at one block, the last one ten minutes before the day began; a unit that moves later counts for
 * its new owner on the next day. If a node does not have the state of this block, there is no credit: the
 * current state would count the same unit for several wallets.
 */
import { type Hex, parseAbi } from 'viem';
import { type Clock, MINUTE_MS, SECOND_MS, dayOf, dayStartMs } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, nano, usdToNano } from '../../core/money.ts';
import { endsWithin, remember } from '../bounded.ts';
import { type Contradictions, chainReason } from '../chain-log.ts';
import { type EvmClient, openEvmNodes } from '../evm/chain.ts';
import { Agreement } from '../nodes.ts';
import type { StakingSettings } from '../settings.ts';

export interface DailyStake {
  readonly day: number;
  readonly credit: Nano;
}

/** The stake of a wallet today; `undefined` for a wallet that is not EVM, and if the stake is not known yet. */
export type StakingReader = (wallet: string) => Promise<DailyStake | undefined>;

/** At midnight, no reorganisation and no lagging node changes a block of this age. */
const LEAD_MS = 10 * MINUTE_MS;
/** Bisection needs at most 64 steps; every other step is a guess. */
const MAX_STEPS = 128;
const MAX_WALLETS = 10_000;
/** A request waits for a slow node for this time; the next request gets the result. */
const WAIT_MS = 3 * SECOND_MS;
/** Concurrent reads, because every new wallet causes a call of the chain. */
const MAX_READS = 32;
/** Time after a failed read before the next one. */
const RETRY_MS = 15 * SECOND_MS;
/** Network name in the counts of contradictions. */
export const STAKING_NETWORK = 'staking';
const ANY_WALLET: Hex = '0x0000000000000000000000000000000000000001';

interface Entry {
  readonly day: number;
  readonly startMs: number;
  /** Resolves when the read has ended, and sets `credit` if it succeeded. */
  done: Promise<void> | undefined;
  credit: Nano | undefined;
}

function openStakes(settings: StakingSettings, clock: Clock, contradictions: Contradictions) {
  const agreement = new Agreement({
    network: STAKING_NETWORK,
    nodes: openEvmNodes(settings.rpcUrl, clock).each,
    clock,
    contradictions,
    newestSeconds: async (node) => Number((await node.getBlock()).timestamp),
  });
  const abi = parseAbi([`function ${settings.function}(address) view returns (uint256)`]);
  const usdPerUnit = usdToNano(settings.usdPerUnit);
  return {
    snapshotBlock: async (day: number): Promise<bigint> => {
      const seconds = BigInt(Math.floor((dayStartMs(day) - LEAD_MS) / SECOND_MS));
      return await agreement.value('the block of a day', (node) => lastBlockAt(node, seconds));
    },
    creditAt: async (wallet: Hex, block: bigint): Promise<Nano> => {
      const call = {
        address: settings.contract as Hex, // checked by the configuration
        abi,
        functionName: settings.function,
        args: [wallet],
        blockNumber: block,
      } as const;
      const stake = await agreement.value('a stake', (node) => node.readContract(call));
      return nano((stake * usdPerUnit) / 10n ** BigInt(settings.decimals));
    },
  };
}

/**
 * The number of the last block with a time stamp of at most `seconds` (Unix). Rejects if the chain has no
 * later block, or began later.
 */
async function lastBlockAt(client: EvmClient, seconds: bigint): Promise<bigint> {
  let after = await client.getBlock();
  if (after.timestamp <= seconds)
    throw new Error('The chain has no block after the start of the day yet');
  let before = await client.getBlock({ blockNumber: 0n });
  if (before.timestamp > seconds) throw new Error('The chain began after the start of the day');
  for (let step = 0; after.number - before.number > 1n; step += 1) {
    if (step === MAX_STEPS) throw new Error('The time stamps of the chain must increase');
    const span = after.number - before.number;
    // With regular blocks the first guess is right; every other step bisects.
    const share = ((seconds - before.timestamp) * span) / (after.timestamp - before.timestamp);
    const guess = step % 2 === 0 ? share : span / 2n;
    const inside = guess < 1n ? 1n : guess;
    const blockNumber = before.number + (inside < span ? inside : span - 1n);
    const block = await client.getBlock({ blockNumber });
    if (block.timestamp <= seconds) before = block;
    else after = block;
  }
  return before.number;
}

/** The reason why stakes cannot be read today, or `undefined`. For `farebox check`. */
export async function stakingProblem(
  settings: StakingSettings,
  clock: Clock,
  contradictions: Contradictions,
): Promise<string | undefined> {
  const stakes = openStakes(settings, clock, contradictions);
  try {
    await stakes.creditAt(ANY_WALLET, await stakes.snapshotBlock(dayOf(clock.nowMs())));
    return undefined;
  } catch (error) {
    return chainReason(error);
  }
}

export function openStakingReader(
  settings: StakingSettings,
  clock: Clock,
  log: Log,
  contradictions: Contradictions,
): StakingReader {
  const stakes = openStakes(settings, clock, contradictions);
  const wallets = new Map<string, Entry>();
  let snapshot: { readonly day: number; readonly atMs: number; readonly block: Promise<bigint> };

  /** Searches the block of a day once; repeats a search that failed. */
  async function blockOf(day: number): Promise<bigint> {
    const nowMs = clock.monotonicMs();
    if (snapshot?.day !== day || nowMs >= snapshot.atMs + RETRY_MS) {
      const before = snapshot?.day === day ? snapshot.block : undefined;
      const search = async (): Promise<bigint> => await stakes.snapshotBlock(day);
      snapshot = { day, atMs: nowMs, block: before?.catch(search) ?? search() };
      snapshot.block.catch(() => undefined); // every caller awaits it too
    }
    return await snapshot.block;
  }

  let reads = 0;

  async function read(wallet: string, entry: Entry): Promise<void> {
    reads += 1;
    try {
      const block = await blockOf(entry.day);
      entry.credit = await stakes.creditAt(wallet as Hex, block); // an EVM identity
    } catch (error) {
      // Without a known stake there is no credit.
      log.warn({ reason: chainReason(error) }, 'The stake of a wallet could not be read');
    }
    reads -= 1;
    entry.done = undefined;
  }

  /** Returns `undefined` if too many reads are running; the next request of the wallet tries again. */
  function entryOf(wallet: string): Entry | undefined {
    const nowMs = clock.monotonicMs();
    const day = dayOf(clock.nowMs());
    const known = wallets.get(wallet);
    const isUsable =
      known?.day === day &&
      (known.credit !== undefined || known.done !== undefined || nowMs < known.startMs + RETRY_MS);
    if (isUsable) return known;
    if (reads >= MAX_READS) return undefined;
    const entry: Entry = { day, startMs: nowMs, done: undefined, credit: undefined };
    entry.done = read(wallet, entry);
    remember(wallets, wallet, entry, MAX_WALLETS);
    return entry;
  }

  return async (wallet) => {
    if (!wallet.startsWith('0x')) return undefined;
    const entry = entryOf(wallet);
    if (entry?.done !== undefined) await endsWithin(clock, WAIT_MS, entry.done);
    return entry?.credit === undefined ? undefined : { day: entry.day, credit: entry.credit };
  };
}
