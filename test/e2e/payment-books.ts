/**
 * For tests: the real ledger and the real payments of a folder with a `farebox.yaml`, without a
 * server around them, so that a test decides when they sweep and a child can die at a step.
 */
import { type Stores, openStores } from '../../src/server/stores.ts';
import { walletPostings } from '../../src/wallet/wallet-postings.ts';
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Nano } from '../../src/core/money.ts';
import { type Payments, openPayments } from '../../src/payments/payments.ts';

export interface Books {
  readonly stores: Stores;
  readonly payments: Payments;
  close(): Promise<void>;
}

/** Takes a payment for a request that wants so much of it. */
export async function take(
  { payments }: Books,
  { header, wanted }: { readonly header: string; readonly wanted: Nano },
): Promise<void> {
  const proof = { claim: undefined, idempotencyKey: undefined, path: '/x', clientAddress: '' };
  await (await payments.headers.offer(header, proof)).take(wanted);
}

export async function openBooks(
  folder: string,
  onStep: (step: string) => void = () => undefined,
): Promise<Books> {
  const loaded = await loadConfig({ env: { FAREBOX_DATA: `${folder}/data` }, cwd: folder });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
  const { config } = loaded;
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const stores = await openStores({ config, ...parts });
  const payments = await openPayments({
    ...parts,
    ...walletPostings(stores),
    store: stores.store,
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
    stores,
    payments,
    close: async () => {
      await payments.stop();
      await stores.close();
    },
  };
}
