/**
 * Linked staking: how many USD of daily credit a wallet's stake gives, read from one view function
 * of a configured contract. Answers are kept for a while; a chain that does not answer gives the
 * last known value, or nothing.
 */
import { parseAbi } from 'viem';
import type { Hex } from 'viem';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { nano, usdToNano } from '../kernel/money.ts';
import type { Nano } from '../kernel/money.ts';
import { chainReason } from './chain-reason.ts';
import { openEvmClient } from './evm/chain.ts';
import type { StakingSettings } from './settings.ts';

/** Wallets whose stake is remembered; the oldest goes first. */
const MAX_WALLETS = 10_000;

export type StakingReader = (wallet: string) => Promise<Nano | undefined>;

/** Reads the daily credit of an EVM wallet; `undefined` for other wallets, and when it is not known. */
export function openStakingReader(
  settings: StakingSettings,
  clock: Clock,
  log: Log,
): StakingReader {
  const client = openEvmClient(settings.rpcUrl);
  const abi = parseAbi([`function ${settings.function}(address) view returns (uint256)`]);
  const usdPerUnit = usdToNano(settings.usdPerUnit);
  const known = new Map<string, { readonly credit: Nano; readonly untilMs: number }>();

  async function ask(wallet: string): Promise<Nano> {
    const stake = await client.readContract({
      address: settings.contract as Hex, // checked by the configuration
      abi,
      functionName: settings.function,
      args: [wallet as Hex], // an EVM identity
    });
    return nano((stake * usdPerUnit) / 10n ** BigInt(settings.decimals));
  }

  return async (wallet) => {
    if (!wallet.startsWith('0x')) return undefined;
    const before = known.get(wallet);
    const nowMs = clock.nowMs();
    if (before !== undefined && before.untilMs > nowMs) return before.credit;
    try {
      const credit = await ask(wallet);
      known.delete(wallet);
      known.set(wallet, { credit, untilMs: nowMs + settings.cacheSeconds * 1000 });
      const oldest = known.keys().next().value;
      if (known.size > MAX_WALLETS && oldest !== undefined) known.delete(oldest);
      return credit;
    } catch (error) {
      // The chain does not answer: the last known stake is better than none.
      log.warn({ reason: chainReason(error) }, 'the stake of a wallet could not be read');
      return before?.credit;
    }
  };
}
