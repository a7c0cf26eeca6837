/**
 * For tests: the real ledger and the real payments of a folder with a `farebox.yaml`, without a
 * server around them, so that a test decides when they sweep and a child can die at a step.
 */
import { type Office, openOffice } from '../../src/app/office.ts';
import { walletPostings } from '../../src/app/wallet-postings.ts';
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { systemIds } from '../../src/kernel/ids.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { type Payments, openPayments } from '../../src/payments/payments.ts';

export interface Books {
  readonly office: Office;
  readonly payments: Payments;
  close(): Promise<void>;
}

export async function openBooks(
  folder: string,
  onStep: (step: string) => void = () => undefined,
): Promise<Books> {
  const loaded = await loadConfig({ env: { FAREBOX_DATA: `${folder}/data` }, cwd: folder });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
  const { config } = loaded;
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const office = await openOffice({ config, ...parts });
  const payments = await openPayments({
    ...parts,
    ...walletPostings(office.ledger),
    store: office.store,
    settings: { ...config.payments, minimumBalanceUsd: 0.1 },
    publicUrl: 'http://pay.test',
    serviceName: 'svc',
    tokenPrefix: 'svc_wallet_',
    docsUrl: 'http://pay.test/docs',
    keysUrl: 'http://pay.test/docs',
    pollMs: 25,
    leaseMs: 1_000,
    onStep,
  });
  return {
    office,
    payments,
    close: async () => {
      await payments.stop();
      await office.close();
    },
  };
}
