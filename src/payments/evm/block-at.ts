/** Finds the block that was the newest at a moment, by its time stamp. */
import type { EvmClient } from './chain.ts';

/** A few questions find it where blocks come evenly; halving alone needs 64 for any chain. */
const MAX_STEPS = 128;

/**
 * The number of the last block with a time stamp of at most `seconds` (Unix). Throws while the
 * chain has not passed that moment, and when it began later.
 */
export async function lastBlockAt(client: EvmClient, seconds: bigint): Promise<bigint> {
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
    const number = before.number + clamp(guess, 1n, span - 1n);
    const block = await client.getBlock({ blockNumber: number });
    if (block.timestamp <= seconds) before = block;
    else after = block;
  }
  return before.number;
}

function clamp(value: bigint, least: bigint, most: bigint): bigint {
  if (value < least) return least;
  return value > most ? most : value;
}
