/** Where requests are paid, wired: rate windows, admission, the hold and its settle. */
import type { Config } from '../config/config.ts';
import { Charge } from '../flows/charge.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { usdToNano } from '../kernel/money.ts';
import type { LimitLog, Windows } from '../limits/limits.ts';
import type { Office } from './office.ts';
import { perConfig } from './per-config.ts';
import { sharedLimits } from './shared-limits.ts';
import type { Wallets } from './wallets.ts';
import type { Watch } from './watch.ts';

export interface TillParts {
  readonly config: () => Config;
  readonly office: Office;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  readonly wallets: Wallets;
  /** Told of every settle. */
  readonly watch: Watch;
}

export interface Till {
  readonly charge: Charge;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
}

export function openTill(parts: TillParts): Till {
  const { config, office, limitLog, clock, log, wallets, watch } = parts;
  const { windows, admissions } = sharedLimits(office, clock);
  const charge = new Charge({
    ledger: office.ledger,
    windows,
    admissions,
    limitLog,
    clock,
    log,
    minimumCreditNano: perConfig(config, ({ limits }) => usdToNano(limits.minimumCreditUsd)),
    walletRefusal: (caller, credit) => wallets.refusal(caller, credit),
    settled: (...of) => watch.settled(...of),
  });
  return { charge, windows, limitLog };
}
