/**
 * For tests: the real ledger and the real card payments of a folder with a `farebox.yaml`, without a
 * server around them, so that a test decides when they work and a child can die at a step.
 */
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { type Nano, nano } from '../../src/core/money.ts';
import type { CardPayments } from '../../src/payments/cards/cards.ts';
import { openCardPayments } from '../../src/server/checkout.ts';
import { type Stores, openStores } from '../../src/server/stores.ts';

export interface CardBooks {
  readonly stores: Stores;
  readonly cards: CardPayments;
  close(): Promise<void>;
}

/** An operation of a process. */
export type CardOrder =
  | { readonly do: 'checkout'; readonly accountId: string; readonly nano: string }
  | { readonly do: 'receive'; readonly body: string; readonly signature: string }
  | {
      readonly do: 'refund';
      readonly accountId: string;
      readonly nano: string;
      readonly reference: string;
    }
  | { readonly do: 'top-up' }
  | { readonly do: 'sweep' };

export async function openCardBooks(
  folder: string,
  onStep: (step: string) => void = () => undefined,
): Promise<CardBooks> {
  const loaded = await loadConfig({ env: { FAREBOX_DATA: `${folder}/data` }, cwd: folder });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
  const { config } = loaded;
  const parts = { config, clock: systemClock(), ids: systemIds(), log: silentLog };
  const stores = await openStores(parts);
  const cards = await openCardPayments({ ...parts, stores, onStep: async (step) => onStep(step) });
  if (cards === undefined) throw new Error('The configuration has no provider');
  return {
    stores,
    cards,
    close: async () => {
      await cards.stop();
      await stores.close();
    },
  };
}

export async function carryOut(books: CardBooks, order: CardOrder): Promise<void> {
  const { cards } = books;
  switch (order.do) {
    case 'checkout': {
      const { accountId } = order;
      const amountNano = amountOf(order);
      const returnUrl = 'http://farebox.test/console/credit';
      await cards.checkout({ accountId, amountNano, savesCard: false, returnUrl });
      return;
    }
    case 'receive':
      await cards.receive('stripe', Buffer.from(order.body), {
        'stripe-signature': order.signature,
      });
      return await sweep(books);
    case 'refund':
      // A repeated order pays nothing.
      if ((await cards.refundsBy(order.reference)).length > 0) return;
      await cards.refund(order.accountId, amountOf(order), amountOf(order), order);
      return;
    case 'top-up':
      await cards.topUp();
      return await sweep(books);
    case 'sweep':
      return await sweep(books);
  }
}

function amountOf(order: { readonly nano: string }): Nano {
  return nano(BigInt(order.nano));
}

/** Works on all due payments, as the worker of a server does after its start. */
export async function sweep({ cards }: CardBooks): Promise<void> {
  await cards.table.freeAll();
  for (const { id } of await cards.table.due(1_000)) await cards.check(id);
}
