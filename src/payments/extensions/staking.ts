/**
 * Linked staking: how many USD of daily credit a wallet's stake gives, read from one view function
 * of a configured contract.
 *
 * Invariant: a unit of stake counts once a day, whatever wallets hold it in turn. All wallets are
 * read at the one block that ended ten minutes before the day began, so what moves later counts for
 * its new holder on the next day. A node that cannot serve that state gives nothing: today's state
 * would count the same unit for everybody who shows it.
 */
import { type Hex, parseAbi } from 'viem';
import { type Clock, MINUTE_MS, SECOND_MS, dayOf, dayStartMs } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, nano, usdToNano } from '../../core/money.ts';
import { Agreement } from '../nodes.ts';
import type { Contradictions } from '../chain-log.ts';
import { chainReason } from '../chain-log.ts';
import { type EvmClient, openEvmNodes } from '../evm/chain.ts';
import { remember } from '../bounded.ts';
import type { StakingSettings } from '../settings.ts';
import { endsWithin } from '../bounded.ts';

export interface DailyStake {
  readonly day: number;
  readonly credit: Nano;
}

/** The stake of a wallet today; `undefined` for other wallets than EVM, and while it is not known. */
export type StakingReader = (wallet: string) => Promise<DailyStake | undefined>;

/** Deep enough at midnight that no reorganisation and no lagging node changes the answer. */
const LEAD_MS = 10 * MINUTE_MS;
/** A few questions find a block where blocks come evenly; halving alone needs 64 for any chain. */
const MAX_STEPS = 128;
const MAX_WALLETS = 10_000;
/** A request waits that long, not for a slow node; the answer then comes to the next one. */
const WAIT_MS = 3 * SECOND_MS;
/** Wallets that are asked about at once: a new one, which anybody makes, is a call of the chain. */
const MAX_ASKED = 32;
/** A question that failed is not asked again for that long. */
const RETRY_MS = 15 * SECOND_MS;
/** The chain of a contract has no name in the configuration: what its contradictions are counted under. */
export const STAKING_NETWORK = 'staking';
const ANYBODY: Hex = '0x0000000000000000000000000000000000000001';

interface Entry {
  readonly day: number;
  readonly askedMs: number;
  /** Ends with `credit` set, or without when the chain gave none; never rejects. */
  done: Promise<void> | undefined;
  credit: Nano | undefined;
}

/** The two questions to the chain. Both reject when it cannot be asked. */
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
 * The number of the last block with a time stamp of at most `seconds` (Unix). Throws while the
 * chain has not passed that moment, and when it began later.
 */
async function lastBlockAt(client: EvmClient, seconds: bigint): Promise<bigint> {
  let after = await client.getBlock();
  if (after.timestamp <= seconds) throw new Error('The chain has not passed that moment yet');
  let before = await client.getBlock({ blockNumber: 0n });
  if (before.timestamp > seconds) throw new Error('The chain began after that moment');
  for (let step = 0; after.number - before.number > 1n; step += 1) {
    if (step === MAX_STEPS) throw new Error('The time stamps of the chain are not in order');
    const span = after.number - before.number;
    // Where blocks come evenly the first guess is right; every other one halves, whatever they do.
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

/** Why the stake of a wallet could not be read today, or `undefined` when it can. For `farebox check`. */
export async function stakingProblem(
  settings: StakingSettings,
  clock: Clock,
  contradictions: Contradictions,
): Promise<string | undefined> {
  const stakes = openStakes(settings, clock, contradictions);
  try {
    await stakes.creditAt(ANYBODY, await stakes.snapshotBlock(dayOf(clock.nowMs())));
    return undefined;
  } catch (error) {
    // The reason is the answer.
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

  /** The block of a day is searched once; a search that failed is repeated later. */
  async function blockOf(day: number): Promise<bigint> {
    const nowMs = clock.monotonicMs();
    if (snapshot?.day !== day || nowMs >= snapshot.atMs + RETRY_MS) {
      const before = snapshot?.day === day ? snapshot.block : undefined;
      const search = async (): Promise<bigint> => await stakes.snapshotBlock(day);
      snapshot = { day, atMs: nowMs, block: before?.catch(search) ?? search() };
      snapshot.block.catch(() => undefined); // told to each wallet that waits for it
    }
    return await snapshot.block;
  }

  let asked = 0;

  async function ask(wallet: string, entry: Entry): Promise<void> {
    asked += 1;
    try {
      // An EVM identity is hex.
      entry.credit = await stakes.creditAt(wallet as Hex, await blockOf(entry.day));
    } catch (error) {
      // No credit by stake today, or only later: what is not known is not given.
      log.warn({ reason: chainReason(error) }, 'The stake of a wallet could not be read');
    }
    asked -= 1;
    entry.done = undefined;
  }

  /** `undefined` while too many others are asked about: its next request asks. */
  function entryOf(wallet: string): Entry | undefined {
    const nowMs = clock.monotonicMs();
    const day = dayOf(clock.nowMs());
    const known = wallets.get(wallet);
    const isUsable =
      known?.day === day &&
      (known.credit !== undefined || known.done !== undefined || nowMs < known.askedMs + RETRY_MS);
    if (isUsable) return known;
    if (asked >= MAX_ASKED) return undefined;
    const entry: Entry = { day, askedMs: nowMs, done: undefined, credit: undefined };
    entry.done = ask(wallet, entry);
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
