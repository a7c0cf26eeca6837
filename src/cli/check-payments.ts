/**
 * What `farebox check` says of payments: does each rail's node answer, on the right chain, and can
 * the key that pays for settlements do so? Asks, and sends nothing.
 */
import { existsSync } from 'node:fs';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { type RailHealth, askRails, askStaking } from '../payments/payments.ts';
import { openStore } from '../db/db.ts';
import type { Finding } from './finding.ts';

const COINS = {
  base: { coin: 'ETH', decimals: 18 },
  solana: { coin: 'SOL', decimals: 9 },
} as const;
/** What a person needs of a balance that pays fees. */
const SHOWN_DECIMALS = 6;

type RailName = keyof typeof COINS;

export async function paymentFindings(config: Config): Promise<Finding[]> {
  const { payments, limits } = config;
  const settings = { ...payments, minimumBalanceUsd: Number(limits.minimumCreditUsd) };
  const clock = systemClock();
  const rails = await askRails({
    settings,
    clock,
    log: silentLog,
    openStore: async () => {
      const { databaseUrl: url } = config;
      // A check makes no database.
      if (url.startsWith('sqlite:') && !existsSync(url.slice('sqlite:'.length))) return undefined;
      return openStore({ url, clock, ids: systemIds(), log: silentLog });
    },
  });
  if (rails.length === 0) {
    const says = 'no rail configured: API keys work alone';
    return [{ what: 'payments', state: 'note', says }];
  }
  const findings = rails.map((rail) =>
    findingOf(rail.network === payments.base?.network ? 'base' : 'solana', rail),
  );
  if (payments.staking === undefined) return findings;
  const problem = await askStaking({ settings, clock: systemClock(), log: silentLog });
  return [...findings, stakingFinding(problem)];
}

function stakingFinding(problem: string | undefined): Finding {
  const what = 'payments staking';
  if (problem === undefined) return { what, state: 'ok', says: 'its stakes can be read' };
  const says = `The stake of 23:50 UTC of yesterday cannot be read, so nobody has daily credit: ${problem}`;
  return { what, state: 'wrong', says };
}

function findingOf(name: RailName, rail: RailHealth): Finding {
  const what = `payments ${name}`;
  const held = heldBy(name, rail);
  if (rail.problems.length === 0) {
    return { what, state: 'ok', says: [`settles on ${rail.network}`, ...held].join('; ') };
  }
  const says = [...rail.problems, ...held].join('; ');
  return { what, state: rail.isReady ? 'note' : 'wrong', says };
}

/** Whose balance pays for settlements; with an external facilitator it is nobody's here. */
function heldBy(name: RailName, { gasAddress, gasBalance }: RailHealth): string[] {
  if (gasAddress === undefined || gasBalance === undefined) return [];
  const { coin, decimals } = COINS[name];
  return [`${gasAddress} holds ${shownAmount(gasBalance, decimals)} ${coin} for fees`];
}

/** Cut, not rounded: a balance is never shown larger than it is. */
function shownAmount(units: bigint, decimals: number): string {
  const scale = 10n ** BigInt(decimals);
  const fraction = String(units % scale)
    .padStart(decimals, '0')
    .slice(0, SHOWN_DECIMALS);
  return `${units / scale}.${fraction}`;
}
