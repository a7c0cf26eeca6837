/**
 * Refunds of unused credit to the wallet that paid, on the network of its latest payment, as far as that
 * credit is final: the balance keeps covering payments that the chain could still undo. A refund is debited in the database transaction that
 * opens its row, signed once as a transfer that can happen at most once, and found on the chain as top-ups
 * are. A refund that can never arrive is credited back, once the blocks that show this are final.
 */
import { walletIdentity, walletKind } from '../core/addresses.ts';
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, formatUsd, nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import { chainReason } from './chain-log.ts';
import type { CreditMonitor } from './credit-monitor.ts';
import { isEvm, nanoToUnits, unitsToNano } from './networks.ts';
import type { Evidence, RefundRail } from './rail.ts';
import type { PaymentServices } from './payment-options.ts';
import { type RefundRow, RefundTable } from './refund-table.ts';
import { attemptOf } from './top-up-records.ts';

export type RefundState = Awaited<ReturnType<Refunds['state']>>;

/** A credited payment that the chain could still undo. */
export interface OpenCredit {
  readonly paymentId: string;
  readonly transaction: string | undefined;
  readonly amountNano: Nano;
}

const RECHECK_MS = 15 * SECOND_MS;
const WATCH_MS = MINUTE_MS;

export class Refunds {
  readonly table: RefundTable;
  readonly #options: PaymentServices;
  readonly #monitor: CreditMonitor;

  constructor(options: PaymentServices, monitor: CreditMonitor) {
    this.table = new RefundTable(options);
    this.#options = options;
    this.#monitor = monitor;
  }

  /** Credits of a wallet that the chain could still undo. Throws a Fault for a bad address. */
  async openCredits(address: string): Promise<readonly OpenCredit[]> {
    const wallet = walletOf(address);
    await this.#monitor.checkCreditsOf(wallet);
    return await this.#openCredits(wallet);
  }

  /**
   * Pays back final credit, rounded down to token units. Throws a Fault if nothing was debited. An id
   * pays at most once. Default: a new id.
   */
  async refund(
    address: string,
    amountNano: Nano,
    refundId = `refund-${this.#options.ids.uuid()}`,
    wantedNetwork?: string,
  ): Promise<RefundState> {
    const { store, debitRefund } = this.#options;
    const wallet = walletOf(address);
    await this.#monitor.checkCreditsOf(wallet);
    const { network, refunds } = await this.#railOf(wallet, wantedNetwork);
    const units = nanoToUnits(amountNano);
    if (units <= 0n) {
      throw new Fault('INVALID_AMOUNT', { message: 'The refund must be at least one token unit' });
    }
    const authorization = await refunds.authorize(refundId, wallet, units);
    await store.transaction(async (tx) => {
      const leftNano = await debitRefund(tx, {
        wallet,
        network,
        amountNano: unitsToNano(units),
        refundId,
      });
      const open = await this.#openCredits(wallet, tx);
      if (leftNano < sumOf(open)) throw notFinal(wallet, open);
      await this.table.open(tx, { refundId, network, wallet, units, authorization });
    });
    await this.table.hold(refundId, () => this.#settle(refundId, refunds, true));
    return await this.state(refundId);
  }

  async state(refundId: string) {
    const state = await this.find(refundId);
    if (state !== undefined) return state;
    throw new Fault('REQUEST_ID_NOT_FOUND', { message: 'Refund not found' });
  }

  async find(refundId: string) {
    const row = await this.table.find(refundId);
    if (row === undefined) return undefined;
    return {
      refundId,
      wallet: row.wallet,
      network: row.network,
      amountNano: unitsToNano(row.amount_units),
      state: row.state,
      transaction: row.tx_id ?? undefined,
      failure: row.failure ?? undefined,
    };
  }

  /** Finishes a refund, or checks that a paid one is still on the chain. */
  async finish({ refund_id: refundId, network }: RefundRow): Promise<void> {
    const refunds = this.#options.rails.get(network)?.refunds;
    if (refunds === undefined) return;
    await this.table.withLease(refundId, async (row) => {
      if (row.is_watched === 1n) await this.#watch(row, refunds);
      else await this.#settle(refundId, refunds, false);
    });
  }

  async #watch(row: RefundRow, refunds: RefundRail): Promise<void> {
    const { log } = this.#options;
    const { refund_id: refundId, network, tx_id: transaction } = row;
    const evidence = await this.#find(row, refunds);
    const isGone = evidence !== undefined && evidence.kind !== 'paid';
    if (isGone || (evidence?.kind === 'paid' && evidence.isConfirmed)) {
      await this.table.watched(refundId, isGone ? 'sent' : 'paid');
    }
    await this.table.rest(refundId, isGone ? 0 : WATCH_MS);
    if (!isGone) return;
    const note = { refundId, network, transaction };
    log.error(note, 'A refund is no longer on the chain: it is sent again');
  }

  /** Searches the chain, sends the refund if it is not there, searches again; ends or releases the row. */
  async #settle(refundId: string, refunds: RefundRail, wait: boolean): Promise<void> {
    const { clock, log, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + (wait ? settleWaitMs : 0);
    for (let isSent = false; ;) {
      const row = await this.table.find(refundId);
      if (row === undefined || row.state === 'paid' || row.state === 'failed') return;
      const evidence = await this.#find(row, refunds);
      if (evidence?.kind === 'paid') {
        const { transaction } = evidence;
        await this.table.paid(refundId, transaction, WATCH_MS);
        return log.info({ refundId, transaction }, 'A refund has arrived');
      }
      if (evidence?.kind === 'final' && evidence.isConfirmed) {
        return await this.#giveUp(row, evidence.reason);
      }
      if (evidence?.kind === 'open' && evidence.attempt !== 'waiting' && !isSent) {
        isSent = true;
        try {
          await refunds.send(row.authorization_text, row.raw_tx ?? undefined, this.table.journal);
        } catch (error) {
          // Either the response was lost or the node rejected the refund: the next search of the chain
          // shows which.
          log.warn({ reason: chainReason(error), refundId }, 'A refund got no response');
        }
        continue;
      }
      if (clock.monotonicMs() >= deadlineMs) {
        return await this.table.rest(refundId, RECHECK_MS);
      }
      isSent = true;
      await clock.sleep(pollMs);
    }
  }

  async #find(row: RefundRow, refunds: RefundRail): Promise<Evidence | undefined> {
    try {
      return await refunds.find(row.authorization_text, attemptOf(row));
    } catch (error) {
      // The next sweep reads the chain again.
      const note = { reason: chainReason(error) };
      this.#options.log.warn(note, 'The state of a refund on the chain is unknown');
      return undefined;
    }
  }

  async #giveUp(row: RefundRow, reason: string): Promise<void> {
    const { store, restoreRefund, log } = this.#options;
    const { refund_id: refundId, wallet, network } = row;
    await store.transaction(async (tx) => {
      if (!(await this.table.failed(tx, refundId, reason))) return;
      const amountNano = unitsToNano(row.amount_units);
      await restoreRefund(tx, { wallet, network, refundId, amountNano });
    });
    log.warn({ refundId, reason }, 'A refund failed and was credited back');
  }

  async #openCredits(wallet: string, tx?: Queryable): Promise<readonly OpenCredit[]> {
    const rows = await this.#options.table.notFinal(wallet, tx);
    return rows.map((row) => ({
      paymentId: row.payment_id,
      transaction: row.tx_id ?? undefined,
      amountNano: unitsToNano(row.amount_units),
    }));
  }

  /**
   * The wanted network, or the one of the latest payment of the wallet. A wallet can be a contract, which
   * exists on its own network only. A wallet without payments gets the first network of its kind.
   */
  async #railOf(
    wallet: string,
    wanted: string | undefined,
  ): Promise<{ network: string; refunds: RefundRail }> {
    const { rails, table } = this.#options;
    const ofKind = [...rails.values()].filter(
      ({ network }) => isEvm(network) === wallet.startsWith('0x'),
    );
    const latest = wanted ?? (await table.latestNetwork(wallet));
    const found = ofKind.find(({ network, refunds }) =>
      latest === undefined ? refunds !== undefined : network === latest,
    );
    if (found?.refunds !== undefined) return { network: found.network, refunds: found.refunds };
    const where = latest === undefined ? 'to this kind of wallet' : `on ${latest}`;
    throw new Fault('X402_NOT_CONFIGURED', {
      message: `Refunds ${where} need a refund key and a gas key in the configuration`,
    });
  }
}

function walletOf(address: string): string {
  if (walletKind(address) !== undefined) return walletIdentity(address);
  throw new Fault('INVALID_REQUEST', { message: 'The wallet must be an EVM or a Solana address' });
}

export function sumOf(open: readonly OpenCredit[]): Nano {
  return nano(open.reduce((sum, { amountNano }) => sum + amountNano, 0n));
}

function notFinal(wallet: string, open: readonly OpenCredit[]): Fault {
  const named = open.map(
    ({ paymentId, amountNano }) => `${paymentId} (${formatUsd(amountNano, 6)} USD)`,
  );
  return new Fault('INSUFFICIENT_BALANCE', {
    message: `The wallet ${wallet} has less final credit than this amount: the chain could still undo ${named.join(', ')}. Refund these when they are final, or a smaller amount now`,
  });
}
